/** A length of time in its one or two largest units; a person reading it does not need more. */
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

const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export function formatDateTime(rfc3339: string | null): string {
  if (rfc3339 === null) return "unknown";
  const at = new Date(rfc3339);
  return Number.isNaN(at.getTime()) ? "unknown" : dateTime.format(at);
}

export function formatClock(ms: number): string {
  return clockTime.format(ms);
}
