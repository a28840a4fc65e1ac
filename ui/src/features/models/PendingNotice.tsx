import type { Model } from "@/api/types";
import styles from "./ConfigEditor.module.css";
import { pendingWords } from "./states";

/** The newest configuration does not serve yet: why, and which revision does. */
export function PendingNotice({ pending }: { pending: NonNullable<Model["pending"]> }) {
  return (
    <p className={styles.pending} role="status">
      <strong>
        Revision <code>{pending.revision.slice(0, 12)}</code> is pending.
      </strong>{" "}
      {pendingWords(pending)} Revision <code>{pending.serving.slice(0, 12)}</code> serves until then.
    </p>
  );
}
