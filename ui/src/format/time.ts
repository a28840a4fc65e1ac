/** A duration in its one or two largest units. */
export function formatDuration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  return hours % 24 === 0 || days >= 7 ? `${days} d` : `${days} d ${hours % 24} h`;
}

export function formatAge(seconds: number | null): string {
  if (seconds === null) return "never";
  return seconds < 1 ? "just now" : `${formatDuration(seconds)} ago`;
}

const twoDigits = (value: number) => String(value).padStart(2, "0");

/** The format of the CLI, in the reader's time zone. */
export function formatDateTime(rfc3339: string | null): string {
  if (rfc3339 === null) return "unknown";
  const at = new Date(rfc3339);
  if (Number.isNaN(at.getTime())) return "unknown";
  return `${at.getFullYear()}-${twoDigits(at.getMonth() + 1)}-${twoDigits(at.getDate())} ${formatClock(at.getTime())}`;
}

/** For log lines, with milliseconds; a text that is not a time stays unchanged. */
export function formatClockMs(rfc3339: string): string {
  const ms = Date.parse(rfc3339);
  return Number.isNaN(ms) ? rfc3339 : `${formatClock(ms)}.${String(ms % 1000).padStart(3, "0")}`;
}

export function formatClock(ms: number): string {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map(twoDigits).join(":");
}
