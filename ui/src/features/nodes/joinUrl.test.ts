import { expect, test } from "vitest";
import { reachesOnlyThisMachine } from "./joinUrl";

test.each([
  ["http://127.0.0.1:8080", true],
  ["http://localhost:8080", true],
  ["http://[::1]:8080", true],
  ["http://10.0.0.2:8080", false],
  ["https://corral.example", false],
  ["not an address", false],
])("%s reaches only this machine: %s", (url, expected) => expect(reachesOnlyThisMachine(url)).toBe(expected));
