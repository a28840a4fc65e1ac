const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

function unitFor(bytes: number): number {
  if (bytes < 1) return 0;
  return Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
}

function inUnit(bytes: number, unit: number): string {
  const value = bytes / 2 ** (10 * unit);
  return unit === 0 || value >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

export function formatBytes(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "unknown";
  const unit = unitFor(bytes);
  return `${inUnit(bytes, unit)} ${UNITS[unit]}`;
}

/** Both numbers in the unit of the whole, so that they can be compared at a glance: `18.2 / 24.0 GiB`. */
export function formatShare(part: number, whole: number): string {
  const unit = unitFor(whole);
  return `${inUnit(part, unit)} / ${inUnit(whole, unit)} ${UNITS[unit]}`;
}
