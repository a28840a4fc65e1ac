import type { ReactNode } from "react";
import { cx } from "./cx";
import styles from "./SidePanel.module.css";

interface SidePanelProps {
  label: string;
  isOpen: boolean;
  onClose: () => void;
  panel: ReactNode;
  children: ReactNode;
}

/** A page with a details panel beside it; on a narrow screen, over it. */
export function SidePanel({ label, isOpen, onClose, panel, children }: SidePanelProps) {
  return (
    <div className={cx(styles.page, isOpen && styles.withPanel)}>
      <div className={styles.main}>{children}</div>
      {isOpen ? (
        <aside
          className={styles.panel}
          aria-label={label}
          onKeyDown={(event) => {
            // Dialogs opened from here are React children of the page, and their Escape is their own.
            if (
              event.key === "Escape" &&
              !event.defaultPrevented &&
              event.currentTarget.contains(event.target as Element)
            )
              onClose();
          }}
        >
          {panel}
        </aside>
      ) : null}
    </div>
  );
}
