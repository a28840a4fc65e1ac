import { describe, expect, it } from "vitest";
import { describeLimits, fieldsOf, limitsOf, NotALimit } from "./limits";

const NONE = {
  requests_per_minute: null,
  tokens_per_minute: null,
  concurrent_requests: null,
  tokens_per_day: null,
  tokens_per_month: null,
  priority: null,
};
const FREE = {
  requests_per_minute: 0,
  tokens_per_minute: 0,
  concurrent_requests: 0,
  tokens_per_day: 0,
  tokens_per_month: 0,
  priority: "normal" as const,
};

describe("the fields of limits", () => {
  it.each([
    ["", null],
    ["none", 0],
    ["60", 60],
    ["1,000,000", 1_000_000],
    [" 5 000 ", 5000],
  ])("reads %j as %j", (text, expected) => {
    expect(limitsOf({ ...fieldsOf(NONE), tokens_per_day: text }).tokens_per_day).toBe(expected);
  });

  it.each(["0", "-1", "1.5", "many", "1e9"])("refuses %j and names the field", (text) => {
    expect(() => limitsOf({ ...fieldsOf(NONE), tokens_per_day: text })).toThrow(NotALimit);
    expect(() => limitsOf({ ...fieldsOf(NONE), tokens_per_day: text })).toThrow("Tokens per day");
  });

  it("shows what it reads", () => {
    const limits = { ...NONE, requests_per_minute: 60, tokens_per_day: 0, priority: "low" as const };
    expect(limitsOf(fieldsOf(limits))).toEqual(limits);
  });
});

describe("limits in words", () => {
  it("names those in force and an unusual priority", () => {
    expect(describeLimits(FREE)).toBe("");
    expect(describeLimits({ ...FREE, requests_per_minute: 60, priority: "high" })).toBe(
      "60 requests/min · high priority",
    );
  });
});
