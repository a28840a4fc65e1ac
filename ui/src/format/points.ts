/** The last hour in minutes, for charts. */

export interface Point {
  /** Minutes ago; 0 is now. */
  ago: number;
  /** Null when unknown, which is not zero. */
  value: number | null;
}

export const MINUTES = 60;

/** From values oldest first, the last of which is now; minutes before the first are unknown. */
export function lastHour(values: readonly (number | null)[]): Point[] {
  return Array.from({ length: MINUTES }, (_, index) => {
    const ago = MINUTES - 1 - index;
    return { ago, value: values.at(-1 - ago) ?? null };
  });
}

/** The newest known value, unless it is too old to be current. */
export function latest(points: readonly Point[]): number | null {
  return points.slice(-2).findLast(({ value }) => value !== null)?.value ?? null;
}

/** A round number at or above the largest value, for the top of a chart. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * unit >= value) ?? 10) * unit;
}
