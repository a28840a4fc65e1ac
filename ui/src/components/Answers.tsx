/** The answers a screen gives when it cannot show what it is for: loading, failed with a way on, empty with a next
 * step. */
import type { ReactNode } from "react";
import { ApiError } from "@/api/errors";
import { sentence } from "@/format/text";
import styles from "./Answers.module.css";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";
import { Spinner } from "./Spinner";

export function Loading({ what }: { what: string }) {
  return (
    <div className={styles.loading} role="status">
      <Spinner />
      Loading {what}…
    </div>
  );
}

/** `about`: the name of what it tells of, which stays as it is written. */
export function messageOf(error: unknown, about = ""): string {
  return sentence(error instanceof Error ? error.message : String(error), about);
}

function hintFor(error: unknown): string | null {
  if (!(error instanceof ApiError)) return null;
  if (error.status === 403) return "You are signed in with a key that may not see this. Sign out and use an admin key.";
  if (error.isPassing) return "Corral keeps trying; this page fills in by itself when the frontend answers.";
  return null;
}

interface ProblemProps {
  title: string;
  error: unknown;
  onRetry: () => void;
  retrying?: boolean;
}

export function Problem({ title, error, onRetry, retrying = false }: ProblemProps) {
  const hint = hintFor(error);
  return (
    <div className={styles.panel} role="alert">
      <span className={styles.badIcon}>
        <Icon name="warning" size={22} />
      </span>
      <h2>{title}</h2>
      <p className={styles.said}>{messageOf(error)}</p>
      {hint === null ? null : <p className={styles.hint}>{hint}</p>}
      <Button icon="retry" busy={retrying} onClick={onRetry}>
        Try again
      </Button>
    </div>
  );
}

interface EmptyProps {
  icon: IconName;
  title: string;
  hint: ReactNode;
  children?: ReactNode;
}

export function Empty({ icon, title, hint, children }: EmptyProps) {
  return (
    <div className={styles.panel}>
      <span className={styles.icon}>
        <Icon name={icon} size={22} />
      </span>
      <h2>{title}</h2>
      <p className={styles.hint}>{hint}</p>
      {children}
    </div>
  );
}

/** A failed action, said where the action was started. */
export function InlineError({ error, about = "" }: { error: unknown; about?: string }) {
  return (
    <p className={styles.inline} role="alert">
      <Icon name="warning" />
      <span>{messageOf(error, about)}</span>
    </p>
  );
}
