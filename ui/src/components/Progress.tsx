import { cx } from "./cx";
import styles from "./Progress.module.css";

/** A thin bar. Null: in progress, with an unknown percentage. */
export function Progress({
  label,
  percentage,
  tone = "blue",
}: {
  label: string;
  percentage: number | null;
  tone?: "blue" | "green" | "red" | "yellow" | "grey";
}) {
  return (
    <span
      className={styles.track}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      {...(percentage === null ? {} : { "aria-valuenow": Math.round(percentage) })}
    >
      <span
        className={cx(styles.fill, styles[tone], percentage === null && styles.unknown)}
        style={percentage === null ? undefined : { width: `${percentage}%` }}
      />
    </span>
  );
}
