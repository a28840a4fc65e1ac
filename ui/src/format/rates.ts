import { formatBytes } from "./bytes";
import { formatDuration } from "./time";

/** Empty when no bytes move: the phase then says what happens. */
export function formatRate(bytesPerS: number | null): string {
  return bytesPerS === null || bytesPerS < 1 ? "" : `${formatBytes(bytesPerS)}/s`;
}

export function formatEta(seconds: number | null): string {
  return seconds === null ? "" : seconds < 1 ? "less than 1 s left" : `${formatDuration(seconds)} left`;
}

/** A number with about three significant digits. */
export function formatFigure(value: number): string {
  if (value === 0) return "0";
  if (value < 1) return value.toFixed(2);
  if (value < 100) return value.toFixed(1);
  if (value < 10_000) return String(Math.round(value));
  return `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)} k`;
}

/** A count of whole things. */
export function formatCount(value: number): string {
  return value < 10_000 ? String(Math.round(value)) : formatFigure(value);
}

export function formatSeconds(seconds: number | null): string {
  if (seconds === null) return "–";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}
