import type { NodeStatus } from "@/api/types";
import { Filters } from "@/components/Filters";
import { SearchField } from "@/components/SearchField";
import { StatusMark } from "@/components/StatusPill";
import { STATUSES, STATUS_WORDS } from "@/format/status";
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
      <Filters
        label="Show by status"
        options={STATUSES.map((status) => ({
          value: status,
          word: STATUS_WORDS[status],
          count: counts[status],
          mark: <StatusMark status={status} />,
        }))}
        chosen={statuses}
        total={total}
        onToggle={onToggleStatus}
        onAll={onAllStatuses}
      />
    </div>
  );
}
