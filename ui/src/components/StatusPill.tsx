import type { NodeStatus } from "@/api/types";
import { STATUS_WORDS } from "@/format/status";
import { cx } from "./cx";
import styles from "./StatusPill.module.css";

/** Each status has its own shape, so that colour is never the only difference. */
function Mark({ status }: { status: NodeStatus }) {
  switch (status) {
    case "healthy":
      return <circle cx="6" cy="6" r="4.5" fill="currentColor" />;
    case "pending":
      return (
        <circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" strokeWidth="1.8" strokeDasharray="2.4 2" />
      );
    case "unhealthy":
      return <path d="M6 1.2l5.2 9.4H.8z" fill="currentColor" />;
    case "offline":
      return (
        <path
          d="M2.9 9.1a4.4 4.4 0 106.2-6.2 4.4 4.4 0 00-6.2 6.2zm0 0l6.2-6.2"
          fill="none"
          stroke="currentColor"
          strokeWidth="1.7"
        />
      );
    case "joining":
      return <path d="M6 11V4.5M2.8 7.5L6 4.2l3.2 3.3M2 1.2h8" fill="none" stroke="currentColor" strokeWidth="1.7" />;
    case "draining":
      return <path d="M6 1v6.5M2.8 5L6 8.2 9.2 5M2 11h8" fill="none" stroke="currentColor" strokeWidth="1.7" />;
  }
}

export function StatusMark({ status }: { status: NodeStatus }) {
  return (
    <svg aria-hidden="true" width="11" height="11" viewBox="0 0 12 12" className={cx(styles.mark, styles[status])}>
      <Mark status={status} />
    </svg>
  );
}

export function StatusPill({ status }: { status: NodeStatus }) {
  return (
    <span className={cx(styles.pill, styles[status])}>
      <StatusMark status={status} />
      {STATUS_WORDS[status]}
    </span>
  );
}
