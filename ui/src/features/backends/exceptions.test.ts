import { expect, test } from "vitest";
import type { PolicyException } from "@/api/types";
import { exceptionWords } from "./exceptions";

const now = Date.parse("2026-01-01T00:03:00Z");
const words = (fields: Partial<PolicyException>) =>
  exceptionWords(
    {
      cause: "deleted",
      backend: "echo",
      verb: "",
      done: true,
      at: "2026-01-01T00:00:00Z",
      reason: "",
      ...fields,
    } as PolicyException,
    "echo",
    now,
  );

test("an exception of a policy names the change on the node and its age", () => {
  expect(words({})).toBe("deleted 3 min ago");
  expect(words({ done: false })).toBe("delete requested 3 min ago");
  expect(words({ cause: "installed", backend: "cpu-echo" })).toBe("cpu-echo installed 3 min ago");
  expect(words({ cause: "cancelled", verb: "upgrade", done: false })).toBe("upgrade cancelled 3 min ago");
  expect(words({ cause: "no_build", at: null, reason: "it has no build for arm64" })).toBe("it has no build for arm64");
  expect(words({ at: null })).toBe("deleted");
});
