/** The states of a screen without data: loading, failed with a retry, empty with a next step. */
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

/** `about`: the name of the subject, which is not capitalised. */
export function messageOf(error: unknown, about = ""): string {
  return sentence(error instanceof Error ? error.message : String(error), about);
}

function hintFor(error: unknown): string | null {
  if (!(error instanceof ApiError)) return null;
  if (error.status === 403) return "Your key does not have access. Sign out, then sign in with an admin key.";
  if (error.isTransient) return "Corral keeps retrying. This page loads when the frontend responds.";
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

/** A failed action, shown where it was started. */
export function InlineError({ error, about = "" }: { error: unknown; about?: string }) {
  return (
    <p className={styles.inline} role="alert">
      <Icon name="warning" />
      <span>{messageOf(error, about)}</span>
    </p>
  );
}
