import type { ReactNode } from "react";
import styles from "./Chip.module.css";
import { cx } from "./cx";

interface ChipProps {
  title?: string;
  strong?: boolean;
  children: ReactNode;
}

export function Chip({ title, strong = false, children }: ChipProps) {
  return (
    <span className={cx(styles.chip, strong && styles.strong)} title={title}>
      {children}
    </span>
  );
}
