import type { ReactNode } from "react";
import { cx } from "./cx";
import styles from "./Pill.module.css";

export type Tone = "grey" | "blue" | "yellow" | "green" | "red" | "violet";

/** A state in a word. The word is always shown, so that colour is never the only difference. */
export function Pill({ tone, title, children }: { tone: Tone; title?: string | undefined; children: ReactNode }) {
  return (
    <span className={cx(styles.pill, styles[tone])} title={title} data-tone={tone}>
      {children}
    </span>
  );
}
