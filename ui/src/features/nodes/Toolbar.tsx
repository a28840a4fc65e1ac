import type { NodeStatus } from "@/api/types";
import { cx } from "@/components/cx";
import { SearchField } from "@/components/SearchField";
import { STATUSES, STATUS_WORDS } from "@/format/status";
import { StatusMark } from "@/components/StatusPill";
import styles from "./Toolbar.module.css";

interface ToolbarProps {
  text: string;
  onText: (text: string) => void;
  statuses: readonly NodeStatus[];
  onToggleStatus: (status: NodeStatus) => void;
  onAllStatuses: () => void;
  counts: Record<NodeStatus, number>;
  total: number;
}

export function Toolbar({ text, onText, statuses, onToggleStatus, onAllStatuses, counts, total }: ToolbarProps) {
  return (
    <div className={styles.toolbar} role="search" aria-label="Nodes">
      <SearchField label="Search nodes" placeholder="Name, label, GPU, address…" text={text} onText={onText} />
      <div className={styles.filters} role="group" aria-label="Show by status">
        <button type="button" className={styles.filter} aria-pressed={statuses.length === 0} onClick={onAllStatuses}>
          All <span className={styles.count}>{total}</span>
        </button>
        {STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            className={cx(styles.filter, counts[status] === 0 && styles.none)}
            aria-pressed={statuses.includes(status)}
            onClick={() => onToggleStatus(status)}
          >
            <StatusMark status={status} />
            {STATUS_WORDS[status]} <span className={styles.count}>{counts[status]}</span>
          </button>
        ))}
      </div>
    </div>
  );
}
