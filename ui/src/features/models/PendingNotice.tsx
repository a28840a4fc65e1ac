import type { Model } from "@/api/types";
import styles from "./ConfigEditor.module.css";
import { pendingWords } from "./states";

/** The newest configuration does not serve yet: why, and which revision does. */
export function PendingNotice({ pending }: { pending: NonNullable<Model["pending"]> }) {
  return (
    <p className={styles.pending} role="status">
      <strong>
        Revision {pending.number} {pending.failures > 0 ? "failed" : "is pending"}.
      </strong>{" "}
      {pendingWords(pending)} Revision {pending.serving_number} keeps serving
      {pending.failures > 0 ? ". Edit the configuration, or discard the change." : " until then."}
    </p>
  );
}
