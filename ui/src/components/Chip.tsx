import type { ReactNode } from "react";
import styles from "./Chip.module.css";
import { cx } from "./cx";
import { Icon, type IconName } from "./Icon";

interface ChipProps {
  icon?: IconName;
  /** For running things, to distinguish them from labels. */
  round?: boolean;
  title?: string;
  strong?: boolean;
  children: ReactNode;
}

export function Chip({ icon, round = false, title, strong = false, children }: ChipProps) {
  return (
    <span className={cx(styles.chip, strong && styles.strong, round && styles.round)} title={title}>
      {icon === undefined ? null : <Icon name={icon} size={11} />}
      {children}
    </span>
  );
}
