import { expect, test } from "vitest";
import type { Overview, OverviewSample } from "@/api/types";
import { latest } from "@/format/points";
import { inMinutes } from "./figures";

const sample = (ended_age_s: number, requests: number) => ({ ended_age_s, requests }) as OverviewSample;

test("samples become minutes, and what was never counted stays unknown", () => {
  const overview: Overview = { sample_s: 10, samples: [sample(65, 4), sample(20, 1), sample(10, 2)] };
  const points = inMinutes(overview, (samples) => samples.reduce((sum, each) => sum + each.requests, 0));
  expect(points).toHaveLength(60);
  expect(points.at(0)).toEqual({ ago: 59, value: null });
  expect(points.at(-2)).toEqual({ ago: 1, value: 4 });
  expect(latest(points)).toBe(3);
});
