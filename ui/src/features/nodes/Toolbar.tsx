import { useEffect, useRef, useState } from "react";
import type { NodeStatus } from "@/api/types";
import { cx } from "@/components/cx";
import { Icon } from "@/components/Icon";
import { STATUSES, STATUS_WORDS } from "./status";
import { StatusMark } from "./StatusPill";
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
      <SearchField text={text} onText={onText} />
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

function SearchField({ text, onText }: { text: string; onText: (text: string) => void }) {
  const input = useRef<HTMLInputElement>(null);
  // The field is ahead of the address while someone types, and follows it when it changes otherwise.
  const [typed, setTyped] = useState(text);
  const [sent, setSent] = useState(text);
  if (text !== sent) {
    setSent(text);
    if (text.trim() !== typed.trim()) setTyped(text);
  }

  useEffect(() => {
    function focusOnSlash(event: KeyboardEvent) {
      const target = event.target as HTMLElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.closest("input, textarea, [contenteditable], [role=dialog], [role=alertdialog], [role=menu]")) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    }
    document.addEventListener("keydown", focusOnSlash);
    return () => document.removeEventListener("keydown", focusOnSlash);
  }, []);

  function change(next: string) {
    setTyped(next);
    setSent(next.trim() === "" ? "" : next);
    onText(next);
  }

  return (
    <div className={styles.search}>
      <Icon name="search" />
      <input
        ref={input}
        type="search"
        aria-label="Search nodes"
        aria-keyshortcuts="/"
        placeholder="Name, label, GPU, address…"
        autoCapitalize="none"
        spellCheck={false}
        value={typed}
        onChange={(event) => change(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape" && typed !== "") {
            event.preventDefault();
            event.stopPropagation();
            change("");
          }
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
