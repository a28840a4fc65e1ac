import type { Overview, OverviewSample } from "@/api/types";
import { groupBy } from "@/format/groups";

export interface Point {
  /** Minutes ago; 0 is now. */
  ago: number;
  /** Null where nothing is known, which is not zero. */
  value: number | null;
}

export const MINUTES = 60;

/** Samples put together by whole minutes, oldest first; minutes before anything was counted are unknown. */
export function inMinutes(overview: Overview, fold: (samples: readonly OverviewSample[]) => number | null): Point[] {
  const byMinute = groupBy(overview.samples, ({ ended_age_s }) => Math.floor(ended_age_s / 60));
  return Array.from({ length: MINUTES }, (_, index) => {
    const ago = MINUTES - 1 - index;
    const samples = byMinute.get(ago);
    return { ago, value: samples === undefined ? null : fold(samples) };
  });
}

export function latest(points: readonly Point[]): number | null {
  return points.at(-1)?.value ?? null;
}

/** A round number at or above the largest value, for the top of a chart. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * unit >= value) ?? 10) * unit;
}
