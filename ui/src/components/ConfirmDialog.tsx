import { AlertDialog } from "@base-ui/react/alert-dialog";
import { useRef, type ReactNode } from "react";
import { InlineError } from "./Answers";
import { Button } from "./Button";
import { DialogActions } from "./Dialog";
import styles from "./Dialog.module.css";

interface ConfirmDialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  /** What the action does. */
  children: ReactNode;
  action: string;
  /** The label of the button that closes the dialog. */
  dismiss?: string;
  busy: boolean;
  error: unknown;
  danger?: boolean;
  onConfirm: () => void;
}

/** Confirms an action that is hard to undo. It stays open until the server has responded, and shows its error. */
export function ConfirmDialog({
  open,
  onClose,
  title,
  children,
  action,
  dismiss = "Cancel",
  busy,
  error,
  danger = false,
  onConfirm,
}: ConfirmDialogProps) {
  const cancel = useRef<HTMLButtonElement>(null);
  return (
    <AlertDialog.Root
      open={open}
      onOpenChange={(next) => {
        if (!next && !busy) onClose();
      }}
    >
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className={styles.veil} />
        <AlertDialog.Popup className={styles.popup} initialFocus={cancel}>
          <AlertDialog.Title className={styles.title}>{title}</AlertDialog.Title>
          <AlertDialog.Description className={styles.description} render={<div />}>
            {children}
          </AlertDialog.Description>
          {error ? <InlineError error={error} /> : null}
          <DialogActions>
            <Button ref={cancel} onClick={onClose} aria-disabled={busy}>
              {dismiss}
            </Button>
            <Button look={danger ? "danger" : "primary"} busy={busy} onClick={onConfirm}>
              {action}
            </Button>
          </DialogActions>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
