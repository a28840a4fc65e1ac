import { expect, test } from "vitest";
import { fitsSelector, formatSelector, parseSelector } from "./selector";

test("parses labels separated by commas or spaces, and names an invalid one", () => {
  expect(parseSelector("tier=fast, rack=7")).toEqual({ tier: "fast", rack: "7" });
  expect(parseSelector("tier=a=b gpu=")).toEqual({ tier: "a=b", gpu: "" });
  expect(parseSelector("tier")).toContain("“tier” is not a label");
  expect(parseSelector(" ")).toContain("at least one");
});

test("fits a node that has every label", () => {
  expect(fitsSelector({ tier: "fast", rack: "7" }, { tier: "fast" })).toBe(true);
  expect(fitsSelector({ tier: "fast" }, { tier: "fast", rack: "7" })).toBe(false);
  expect(formatSelector({ tier: "fast", rack: "7" })).toBe("tier=fast, rack=7");
});
