import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useLayoutEffect, useRef, useState, type MouseEvent, type RefObject } from "react";
import { cx } from "@/components/cx";
import { Icon } from "@/components/Icon";
import { ApproveButton } from "./ApproveButton";
import { capabilityLine, cpuLine, gpuLines } from "./hardware";
import { LabelChips } from "./LabelChips";
import { LastSeen } from "./LastSeen";
import { ModelChips } from "./ModelChips";
import { DiskMeter, MemoryMeters } from "./NodeMeters";
import type { SeenNode } from "@/data/nodes";
import type { Sort } from "./seenNodes";
import styles from "./Roster.module.css";
import { RowMenu } from "./RowMenu";
import { reasonFor } from "./status";
import { StatusPill } from "@/components/StatusPill";

interface RosterProps {
  nodes: readonly SeenNode[];
  scroller: RefObject<HTMLElement | null>;
  selectedId: string | null;
  sort: Sort;
  descending: boolean;
  onSort: (sort: Sort) => void;
  onOpen: (id: string) => void;
}

const COLUMNS: readonly { title: string; className: string | undefined; sort?: Sort }[] = [
  { title: "Node", className: styles.name, sort: "name" },
  { title: "Status", className: styles.status, sort: "status" },
  { title: "Hardware", className: styles.hardware },
  { title: "Memory", className: styles.memory, sort: "memory" },
  { title: "Disk", className: styles.disk, sort: "disk" },
  { title: "Models, labels", className: styles.labels },
  { title: "Last seen", className: styles.seen, sort: "seen" },
];

/** The nodes that are in view, out of any number. Rows have roles instead of being a <table>, because only a few of
 * them exist at a time and on a phone each becomes a card. */
export function Roster({ nodes, scroller, selectedId, sort, descending, onSort, onOpen }: RosterProps) {
  const list = useRef<HTMLDivElement>(null);
  const [offset, setOffset] = useState(0);
  const rows = useVirtualizer({
    count: nodes.length,
    getScrollElement: () => scroller.current,
    getItemKey: (index) => nodes[index]?.id ?? index,
    estimateSize: () => 66,
    overscan: 6,
    scrollMargin: offset,
  });
  // The elements above the list (wrapping filters, column titles) decide where it starts. This measures after every
  // render; an unchanged offset causes no further one.
  // eslint-disable-next-line react-hooks/exhaustive-deps
  useLayoutEffect(() => {
    setOffset(list.current?.offsetTop ?? 0);
  });

  return (
    <div className={styles.roster} role="table" aria-label="Nodes" aria-rowcount={nodes.length + 1}>
      <div className={cx(styles.grid, styles.head)} role="row" aria-rowindex={1}>
        {COLUMNS.map((column) => (
          <div
            key={column.title}
            role="columnheader"
            className={column.className}
            aria-sort={column.sort === sort ? (descending ? "descending" : "ascending") : undefined}
          >
            {column.sort === undefined ? (
              column.title
            ) : (
              <SortButton
                title={column.title}
                active={column.sort === sort}
                descending={descending}
                sort={column.sort}
                onSort={onSort}
              />
            )}
          </div>
        ))}
        <div role="columnheader" className={styles.actions}>
          <span className="visually-hidden">Actions</span>
        </div>
      </div>
      <div ref={list} role="rowgroup" className={styles.list} style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map((item) => {
          const node = nodes[item.index];
          return node === undefined ? null : (
            <div
              key={item.key}
              ref={rows.measureElement}
              data-index={item.index}
              role="row"
              aria-rowindex={item.index + 2}
              className={styles.place}
              style={{ transform: `translateY(${item.start - offset}px)` }}
            >
              <Row node={node} selected={node.id === selectedId} onOpen={onOpen} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

interface SortButtonProps {
  title: string;
  sort: Sort;
  active: boolean;
  descending: boolean;
  onSort: (sort: Sort) => void;
}

function SortButton({ title, sort, active, descending, onSort }: SortButtonProps) {
  return (
    <button type="button" className={cx(styles.sort, active && styles.sorted)} onClick={() => onSort(sort)}>
      {title}
      <svg aria-hidden="true" width="8" height="8" viewBox="0 0 8 8" fill="currentColor" className={styles.arrow}>
        <path d={descending ? "M4 7L.8 2h6.4z" : "M4 1l3.2 5H.8z"} />
      </svg>
    </button>
  );
}

interface RowProps {
  node: SeenNode;
  selected: boolean;
  onOpen: (id: string) => void;
}

const Row = memo(function Row({ node, selected, onOpen }: RowProps) {
  const gpus = gpuLines(node);
  const capability = capabilityLine(node);
  const hardware = gpus.length > 0 ? gpus.join(", ") : cpuLine(node);
  const reason = reasonFor(node);

  /** For the mouse only; the keyboard has the link in the first cell. */
  function openByClick(event: MouseEvent) {
    if ((event.target as HTMLElement).closest("a, button, [role=menu]")) return;
    if (window.getSelection()?.type === "Range") return;
    onOpen(node.id);
  }

  return (
    <div className={cx(styles.grid, styles.row, selected && styles.selected)} role="presentation" onClick={openByClick}>
      <div role="cell" className={styles.name}>
        <Link
          to="/nodes/$nodeId"
          params={{ nodeId: node.id }}
          search={(search) => search}
          className={styles.link}
          data-node={node.id}
        >
          {node.name}
        </Link>
        <span className={styles.sub}>
          {node.node_type}
          {node.platform === null ? "" : ` · ${node.platform}`}
        </span>
      </div>
      <div role="cell" className={styles.status}>
        <span className={styles.pills}>
          <StatusPill status={node.state} />
          {node.draining && node.state !== "draining" ? <span className={styles.also}>draining</span> : null}
          {node.claims.length === 0 ? null : (
            <span
              className={styles.conflict}
              title={`Another machine, at ${node.claims.map(({ address }) => address).join(", ")}, claims to be ${node.name}`}
            >
              <Icon name="warning" size={13} /> claimed by another machine
            </span>
          )}
          {node.refused === null ? null : (
            <span className={styles.conflict} title={node.refused.reason}>
              <Icon name="warning" size={13} /> messages rejected
            </span>
          )}
          {node.conflict === null || node.claims.length > 0 ? null : (
            <span className={styles.conflict} title={node.conflict.message}>
              <Icon name="warning" size={13} /> duplicate node identity
            </span>
          )}
        </span>
        {reason === "" ? null : (
          <span className={styles.sub} title={reason}>
            {reason}
          </span>
        )}
      </div>
      <div role="cell" className={styles.hardware}>
        <span className={styles.line} title={hardware}>
          {hardware}
        </span>
        <span className={styles.sub}>
          {gpus.length === 0 && node.capability === "default"
            ? "no GPU"
            : capability !== ""
              ? capability
              : gpus.length > 0
                ? cpuLine(node)
                : node.total_vram === 0
                  ? "no GPU"
                  : "GPU unknown"}
        </span>
      </div>
      <div role="cell" className={styles.memory}>
        <MemoryMeters node={node} />
      </div>
      <div role="cell" className={styles.disk}>
        <DiskMeter node={node} />
      </div>
      <div role="cell" className={styles.labels}>
        <ModelChips nodeId={node.id} />
        <LabelChips node={node} most={2} />
      </div>
      <div role="cell" className={styles.seen}>
        <LastSeen node={node} />
      </div>
      <div role="cell" className={styles.actions}>
        {node.approved ? null : <ApproveButton node={node} />}
        <RowMenu node={node} />
      </div>
    </div>
  );
});
