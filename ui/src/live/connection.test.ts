import { expect, test } from "vitest";
import { retryDelayMs } from "./connection";

test("retries come quickly at first, spread out, and never wait more than ten seconds", () => {
  expect(retryDelayMs(0, 0)).toBe(250);
  expect(retryDelayMs(0, 1)).toBe(500);
  expect(retryDelayMs(3, 0.5)).toBe(3000);
  expect(retryDelayMs(1000, 1)).toBe(10_000);
});
