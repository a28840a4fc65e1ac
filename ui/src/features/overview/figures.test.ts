import { expect, test } from "vitest";
import type { Overview, OverviewSample } from "@/api/types";
import { latest } from "@/format/points";
import type { SeenNode } from "@/data/nodes";
import { failureWords, inMinutes, memoryShown } from "./figures";

const sample = (ended_age_s: number, requests: number) => ({ ended_age_s, requests }) as OverviewSample;

test("samples become minutes, and minutes without samples stay unknown", () => {
  const overview: Overview = { sample_s: 10, samples: [sample(65, 4), sample(20, 1), sample(10, 2)] };
  const points = inMinutes(overview, (samples) => samples.reduce((sum, each) => sum + each.requests, 0));
  expect(points).toHaveLength(60);
  expect(points.at(0)).toEqual({ ago: 59, value: null });
  expect(points.at(-2)).toEqual({ ago: 1, value: 4 });
  expect(latest(points)).toBe(3);
});

test("failures are shown for the time that was counted", () => {
  const now = new Date(2026, 0, 1, 9, 41).getTime();
  const of = (ended_age_s: number, failed: number): Overview => ({
    sample_s: 10,
    samples: [{ ended_age_s, failed } as OverviewSample],
  });
  expect(failureWords(of(590, 0), now)).toBe("none failed since 09:31");
  expect(failureWords(of(590, 1), now)).toBe("1 request failed since 09:31");
  expect(failureWords(of(3580, 2), now)).toBe("2 requests failed in the last hour");
  expect(failureWords({ sample_s: 10, samples: [] }, now)).toBe("no data yet");
});

test("memory is shown in the same order however full the nodes are", () => {
  const node = (name: string, available_ram: number) =>
    ({ name, approved: true, total_ram: 100, available_ram }) as SeenNode;
  const names = (nodes: SeenNode[], most: number) => memoryShown(nodes, most).map(({ name }) => name);
  expect(names([node("n10", 10), node("n2", 50), node("n1", 90)], 24)).toEqual(["n1", "n2", "n10"]);
  expect(names([node("n10", 10), node("n2", 50), node("n1", 90)], 2)).toEqual(["n2", "n10"]);
});
