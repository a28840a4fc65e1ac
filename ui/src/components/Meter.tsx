import { formatBytes, formatShare } from "@/format/bytes";
import styles from "./Meter.module.css";
import { cx } from "./cx";

interface MeterProps {
  /** What is measured, for example "Disk". */
  label: string;
  totalBytes: number | null;
  freeBytes: number | null;
  /** The share at which the bar turns amber. Without it, it never does: GPU memory is meant to be filled. */
  warnFrom?: number;
  /** More about the measure, for example "shared with the GPU". */
  note?: string;
  /** When this was measured, if it may be outdated. */
  asOf?: string;
}

/** How full something is. Unknown values are shown as unknown: an empty bar would mean that nothing is used. */
export function Meter({ label, totalBytes, freeBytes, warnFrom, note, asOf = "" }: MeterProps) {
  const isPast = asOf !== "";
  const title =
    [note === undefined ? "" : `${label}: ${note}`, isPast ? `as of ${asOf}` : ""].filter(Boolean).join(", ") ||
    undefined;
  if (totalBytes === null || freeBytes === null) {
    return (
      <div className={cx(styles.meter, isPast && styles.past)} title={title}>
        <span className={styles.label}>{label}</span>
        <span className={styles.unknown}>
          {totalBytes === null ? "unknown" : `unknown / ${formatBytes(totalBytes)}`}
        </span>
        <span className={cx(styles.track, styles.trackUnknown)} />
      </div>
    );
  }
  const usedBytes = Math.min(totalBytes, Math.max(0, totalBytes - freeBytes));
  const share = totalBytes === 0 ? 0 : usedBytes / totalBytes;
  const isHigh = warnFrom !== undefined && share >= warnFrom;
  const text = formatShare(usedBytes, totalBytes);
  return (
    <div
      className={cx(styles.meter, isPast && styles.past)}
      role="meter"
      aria-label={note === undefined ? label : `${label}, ${note}`}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      aria-valuetext={isPast ? `${text} used, as of ${asOf}` : `${text} used`}
      title={title}
    >
      <span className={styles.label}>{label}</span>
      <span className={styles.value}>{text}</span>
      <span className={styles.track}>
        <span
          className={cx(styles.fill, isHigh && (share >= 0.97 ? styles.full : styles.high))}
          style={{ width: `${share * 100}%` }}
        />
      </span>
    </div>
  );
}
