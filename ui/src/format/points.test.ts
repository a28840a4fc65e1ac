import { expect, test } from "vitest";
import { lastHour, latest, roundUp } from "./points";

test("values become the last minutes of an hour, and what was before is unknown", () => {
  const points = lastHour([4, null, 7]);
  expect(points).toHaveLength(60);
  expect(points.slice(-4).map(({ value }) => value)).toEqual([null, 4, null, 7]);
  expect(points.at(-1)?.ago).toBe(0);
  expect(lastHour(Array.from({ length: 90 }, (_, index) => index)).at(0)).toEqual({ ago: 59, value: 30 });
});

test("the figure beside a chart is the newest that is known", () => {
  expect(latest(lastHour([4, 7, null]))).toBe(7);
  expect(latest(lastHour([]))).toBe(null);
});

test("the top of a chart is a round number", () => {
  expect([0, 0.03, 1, 11, 230].map(roundUp)).toEqual([1, 0.05, 1, 20, 500]);
});
