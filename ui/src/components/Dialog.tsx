import { Dialog as Base } from "@base-ui/react/dialog";
import { useRef, type ReactNode } from "react";
import { IconButton } from "./Button";
import styles from "./Dialog.module.css";
import { cx } from "./cx";

interface DialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  description?: ReactNode;
  wide?: boolean;
  /** It has unsaved content, so only its buttons close it. */
  holds?: boolean;
  children: ReactNode;
}

export function Dialog({ open, onClose, title, description, wide = false, holds = false, children }: DialogProps) {
  const popup = useRef<HTMLDivElement>(null);
  return (
    <Base.Root
      open={open}
      onOpenChange={(next, { reason }) => {
        if (!next && !(holds && (reason === "outside-press" || reason === "escape-key"))) onClose();
      }}
    >
      <Base.Portal>
        <Base.Backdrop className={styles.veil} />
        {/* The dialog takes the focus: focusing a field would open the keyboard of a phone over it. */}
        <Base.Popup ref={popup} initialFocus={popup} className={cx(styles.popup, wide && styles.wide)}>
          <Base.Title className={styles.title}>{title}</Base.Title>
          {description === undefined ? null : (
            <Base.Description className={styles.description} render={<div />}>
              {description}
            </Base.Description>
          )}
          {children}
          {/* Last, so that the keyboard reaches the content first. */}
          <div className={styles.close}>
            <Base.Close render={<IconButton icon="close" label="Close" />} />
          </div>
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

export function DialogActions({ children }: { children: ReactNode }) {
  return <div className={styles.actions}>{children}</div>;
}
