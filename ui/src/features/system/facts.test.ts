import { expect, test } from "vitest";
import { factsOf } from "./facts";

test("facts are told in words, and what is missing is unknown", () => {
  expect(factsOf({ kind: "sqlite", round_trip_ms: 0, connected: true, error: null })).toEqual([
    ["Kind", "sqlite"],
    ["Round trip ms", "0"],
    ["Connected", "yes"],
    ["Error", "unknown"],
  ]);
});
