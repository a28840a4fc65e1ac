import type { Overview, OverviewSample } from "@/api/types";
import { groupBy } from "@/format/groups";
import { MINUTES, type Point } from "@/format/points";

/** Samples put together by whole minutes, oldest first; minutes before anything was counted are unknown. */
export function inMinutes(overview: Overview, fold: (samples: readonly OverviewSample[]) => number | null): Point[] {
  const byMinute = groupBy(overview.samples, ({ ended_age_s }) => Math.floor(ended_age_s / 60));
  return Array.from({ length: MINUTES }, (_, index) => {
    const ago = MINUTES - 1 - index;
    const samples = byMinute.get(ago);
    return { ago, value: samples === undefined ? null : fold(samples) };
  });
}
