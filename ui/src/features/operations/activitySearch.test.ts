import { expect, test } from "vitest";
import { readActivity, validateActivitySearch, withStateToggled } from "./activitySearch";

test("the address holds the states to show; unknown ones are ignored", () => {
  expect(validateActivitySearch({ state: "nonsense" })).toEqual({});
  expect(readActivity(validateActivitySearch({ state: "failed,nonsense" })).states).toEqual(["failed"]);
  const two = withStateToggled({ state: "failed" }, "cancelled");
  expect(readActivity(two).states).toEqual(["failed", "cancelled"]);
  expect(readActivity(withStateToggled(withStateToggled(two, "failed"), "cancelled")).states).toEqual([]);
});
