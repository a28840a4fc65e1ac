import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useMemo, useRef } from "react";
import type { NodeProgressStatus, OperationNode } from "@/api/types";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { cx } from "@/components/cx";
import { Pill } from "@/components/Pill";
import { Progress } from "@/components/Progress";
import { useAnnounce } from "@/components/Toasts";
import { Tooltip } from "@/components/Tooltip";
import { useNow } from "@/components/useNow";
import { useHeldNodes, type Held } from "@/data/nodes";
import { useRetry } from "@/data/operations";
import { closed } from "@/format/text";
import styles from "./NodeRows.module.css";
import { pillOf, progressWords, shareOf, unconfirmedText, waitingWords } from "./words";

/** Statuses that need attention come first. */
const ORDER: readonly NodeProgressStatus[] = [
  "error",
  "running_on_worker",
  "downloading",
  "queued",
  "success",
  "cancelled",
  "not_applicable",
];

interface NodeRowsProps {
  operationId: string;
  verb: string;
  nodes: readonly OperationNode[];
  isOver: boolean;
}

export function NodeRows({ operationId, verb, nodes, isOver }: NodeRowsProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const held = useHeldNodes();
  const sorted = useMemo(
    () =>
      [...nodes].sort(
        (a, b) =>
          ORDER.indexOf(a.status) - ORDER.indexOf(b.status) ||
          a.node_name.localeCompare(b.node_name, undefined, { numeric: true }),
      ),
    [nodes],
  );
  const rows = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => scroller.current,
    getItemKey: (index) => sorted[index]?.node_id ?? index,
    estimateSize: () => 42,
    overscan: 8,
  });
  return (
    <div ref={scroller} className={styles.scroller} tabIndex={0} role="list" aria-label="Nodes of this operation">
      <div className={styles.list} style={{ height: rows.getTotalSize() }} role="presentation">
        {rows.getVirtualItems().map((item) => {
          const node = sorted[item.index];
          return node === undefined ? null : (
            <div
              key={item.key}
              ref={rows.measureElement}
              data-index={item.index}
              role="listitem"
              aria-setsize={sorted.length}
              aria-posinset={item.index + 1}
              className={styles.place}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <Row
                operationId={operationId}
                verb={verb}
                node={node}
                isOver={isOver}
                held={held.get(node.node_id) ?? null}
              />
            </div>
          );
        })}
      </div>
    </div>
  );
}

const BAR_TONES = { downloading: "blue", running_on_worker: "yellow" } as const;

interface RowProps {
  operationId: string;
  verb: string;
  node: OperationNode;
  isOver: boolean;
  held: Held | null;
}

const Row = memo(function Row({ operationId, verb, node, isOver, held }: RowProps) {
  const moving = node.status === "downloading" || node.status === "running_on_worker" ? node.status : null;
  return (
    <div className={styles.row} data-node-status={node.status}>
      <span
        className={styles.name}
        title={node.variant === "" || node.variant === node.node_name ? undefined : `build ${node.variant}`}
      >
        {node.node_name}
      </span>
      <StatusPill node={node} verb={verb} />
      <span className={styles.what}>
        {moving === null ? null : <span>{progressWords(node)}</span>}
        {moving !== null && node.file_name !== "" ? (
          <span className={styles.file} title={node.file_name}>
            {node.file_name}
          </span>
        ) : null}
        {node.status === "queued" && node.error === "" ? (
          <span>
            {held !== null || node.next_attempt_at !== null ? (
              <Waiting node={node} held={held} />
            ) : (
              "waiting for its turn"
            )}
          </span>
        ) : null}
      </span>
      <span className={styles.act}>
        {node.status === "error" ? <RetryButton operationId={operationId} node={node} /> : null}
      </span>
      {moving === null ? null : (
        <span className={styles.bar}>
          <Progress label={`Progress on ${node.node_name}`} percentage={shareOf(node)} tone={BAR_TONES[moving]} />
        </span>
      )}
      {node.error === "" ? null : (
        <span className={cx(styles.error, node.status !== "error" && styles.soft)}>
          {closed(node.error)}
          {isOver ? null : <Waiting node={node} held={moving === null ? held : null} />}
        </span>
      )}
    </div>
  );
});

function StatusPill({ node, verb }: { node: OperationNode; verb: string }) {
  const { word, tone } = pillOf(node.status, verb);
  if (node.status !== "running_on_worker") return <Pill tone={tone}>{word}</Pill>;
  const text = unconfirmedText(verb);
  return (
    <Tooltip text={text}>
      <button type="button" className={styles.explained} aria-label={`${word}: ${text}`}>
        <Pill tone={tone}>{word}</Pill>
      </button>
    </Tooltip>
  );
}

function Waiting({ node, held }: { node: OperationNode; held: Held | null }) {
  const words = waitingWords(node, held, useNow());
  return words === "" ? null : <span className={styles.next}> {words}</span>;
}

function RetryButton({ operationId, node }: { operationId: string; node: OperationNode }) {
  const retry = useRetry();
  const announce = useAnnounce();
  return (
    <Button
      size="small"
      icon="retry"
      busy={retry.isPending}
      aria-label={`Retry on ${node.node_name}`}
      onClick={() =>
        retry.mutate(
          { id: operationId, nodeId: node.node_id },
          { onError: (error) => announce.failed(`Could not retry on ${node.node_name}.`, messageOf(error)) },
        )
      }
    >
      Retry
    </Button>
  );
}
