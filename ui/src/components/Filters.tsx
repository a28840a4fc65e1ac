import type { ReactNode } from "react";
import { cx } from "./cx";
import styles from "./Filters.module.css";

export interface FilterOption<T extends string> {
  value: T;
  word: string;
  count: number;
  mark?: ReactNode;
}

interface FiltersProps<T extends string> {
  label: string;
  options: readonly FilterOption<T>[];
  /** With none chosen, all are shown. */
  chosen: readonly T[];
  total: number;
  onToggle: (value: T) => void;
  onAll: () => void;
}

/** Filters a list by kind, with the number of entries of each. */
export function Filters<T extends string>({ label, options, chosen, total, onToggle, onAll }: FiltersProps<T>) {
  return (
    <div className={styles.filters} role="group" aria-label={label}>
      <button type="button" className={styles.filter} aria-pressed={chosen.length === 0} onClick={onAll}>
        All <span className={styles.count}>{total}</span>
      </button>
      {options.map(({ value, word, count, mark }) => (
        <button
          key={value}
          type="button"
          className={cx(styles.filter, count === 0 && styles.none)}
          aria-pressed={chosen.includes(value)}
          onClick={() => onToggle(value)}
        >
          {mark}
          {word} <span className={styles.count}>{count}</span>
        </button>
      ))}
    </div>
  );
}
