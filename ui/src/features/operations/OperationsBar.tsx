import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { memo, useState } from "react";
import { messageOf } from "@/components/Answers";
import { Button, IconButton } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { cx } from "@/components/cx";
import { Icon } from "@/components/Icon";
import { Pill } from "@/components/Pill";
import { Progress } from "@/components/Progress";
import { useAnnounce } from "@/components/Toasts";
import { useNow } from "@/components/useNow";
import { operationQueries, tally, useCancel, useDismiss, useRetry, type SeenOperation } from "@/data/operations";
import { plural } from "@/format/text";
import { NodeRows } from "./NodeRows";
import styles from "./OperationsBar.module.css";
import { stateOf, summaryOf, titleOf } from "./words";
import { useHeldNodes } from "@/data/nodes";

/** More would push the page out of view; Activity lists the rest. */
const MOST_SHOWN = 3;
const SHOW_ENDED_MS = 8000;

/** On every page: operations in progress, failed, and finished a moment ago. */
export function OperationsBar() {
  const operations = useQuery(operationQueries.list()).data;
  if (operations === undefined || operations.length === 0) return null;
  return <Bar operations={operations} />;
}

function Bar({ operations }: { operations: readonly SeenOperation[] }) {
  const now = useNow();
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());

  const isWorthShowing = (each: SeenOperation) => {
    if (hidden.has(each.jobID)) return false;
    return (
      each.finished_at === null ||
      each.state === "failed" ||
      open.has(each.jobID) ||
      now - each.received_at_ms < SHOW_ENDED_MS
    );
  };
  const shown = operations.filter(isWorthShowing).sort(byAttention);
  if (shown.length === 0) return null;
  const running = shown.filter(({ state }) => state === "running").length;
  const failed = shown.filter(({ state }) => state === "failed").length;

  const toggle = (id: string) => setOpen((before) => withToggled(before, id));
  return (
    <section className={styles.bar} aria-label="Operations">
      <ul>
        {shown.slice(0, MOST_SHOWN).map((operation) => (
          <li key={operation.jobID}>
            <OperationRow
              operation={operation}
              isOpen={open.has(operation.jobID)}
              onToggle={() => toggle(operation.jobID)}
              onHide={() => setHidden((before) => new Set(before).add(operation.jobID))}
            />
          </li>
        ))}
      </ul>
      {shown.length > MOST_SHOWN ? (
        <p className={styles.more}>
          {plural(shown.length - MOST_SHOWN, "more operation")} ({running} running, {failed} failed in total).{" "}
          <Link to="/activity">See all in Activity</Link>
        </p>
      ) : null}
    </section>
  );
}

function byAttention(a: SeenOperation, b: SeenOperation): number {
  return rank(a) - rank(b) || b.created_at.localeCompare(a.created_at);
}

const rank = (operation: SeenOperation) => (operation.state === "running" ? 0 : operation.state === "failed" ? 1 : 2);

function withToggled(set: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(id)) next.add(id);
  return next;
}

interface OperationRowProps {
  operation: SeenOperation;
  isOpen: boolean;
  onToggle: () => void;
  onHide: () => void;
}

const OperationRow = memo(function OperationRow({ operation, isOpen, onToggle, onHide }: OperationRowProps) {
  const { failed } = tally(operation);
  const isOver = operation.finished_at !== null;
  const state = stateOf(operation, useHeldNodes());
  const barTone =
    operation.state === "completed" ? "green" : failed > 0 ? "red" : operation.state === "cancelled" ? "grey" : "blue";
  return (
    <article
      className={cx(!isOpen && (failed > 0 || operation.state === "failed") && styles.folded)}
      aria-label={titleOf(operation)}
    >
      <div className={styles.head}>
        <span className={styles.title}>{titleOf(operation)}</span>
        <Pill tone={state.tone}>{state.word}</Pill>
        <span className={styles.summary}>{summaryOf(operation)}</span>
        <button type="button" className={styles.chevron} aria-expanded={isOpen} onClick={onToggle}>
          <span className={cx(styles.turn, isOpen && styles.turned)}>
            <Icon name="chevron" size={14} />
          </span>
          {plural(operation.nodes.length, "node")}
        </button>
        <span className={styles.buttons}>
          {failed > 0 || operation.state === "failed" ? <RetryAll operation={operation} /> : null}
          {operation.cancellable ? <CancelButton operation={operation} /> : null}
          {operation.state === "failed" ? <DismissButton operation={operation} /> : null}
          {isOver && operation.state !== "failed" ? (
            <IconButton icon="close" label={`Hide ${titleOf(operation)}`} onClick={onHide} />
          ) : null}
        </span>
      </div>
      <Progress
        label={titleOf(operation)}
        percentage={operation.state === "completed" ? 100 : operation.progress}
        tone={barTone}
      />
      {isOpen ? (
        <NodeRows operationId={operation.jobID} verb={operation.verb} nodes={operation.nodes} isOver={isOver} />
      ) : null}
    </article>
  );
});

function RetryAll({ operation }: { operation: SeenOperation }) {
  const retry = useRetry();
  const announce = useAnnounce();
  return (
    <Button
      size="small"
      icon="retry"
      busy={retry.isPending}
      aria-label={`Retry ${titleOf(operation)} on all nodes that failed`}
      onClick={() =>
        retry.mutate(
          { id: operation.jobID },
          { onError: (error) => announce.failed(`Could not retry “${titleOf(operation)}”.`, messageOf(error)) },
        )
      }
    >
      Retry failed
    </Button>
  );
}

function DismissButton({ operation }: { operation: SeenOperation }) {
  const dismiss = useDismiss();
  const announce = useAnnounce();
  return (
    <Button
      size="small"
      look="quiet"
      busy={dismiss.isPending}
      aria-label={`Dismiss ${titleOf(operation)}`}
      onClick={() =>
        dismiss.mutate(operation.jobID, {
          onError: (error) => announce.failed(`Could not dismiss “${titleOf(operation)}”.`, messageOf(error)),
        })
      }
    >
      Dismiss
    </Button>
  );
}

export function CancelButton({ operation }: { operation: SeenOperation }) {
  const [asking, setAsking] = useState(false);
  const cancel = useCancel();
  const { done, total } = tally(operation);
  const close = () => setAsking(false);
  return (
    <>
      <Button size="small" look="quiet" aria-label={`Cancel ${titleOf(operation)}`} onClick={() => setAsking(true)}>
        Cancel
      </Button>
      <ConfirmDialog
        open={asking}
        onClose={close}
        title={`Cancel “${titleOf(operation)}”?`}
        action="Cancel operation"
        dismiss="Keep running"
        danger
        busy={cancel.isPending}
        error={cancel.error}
        onConfirm={() => cancel.mutate(operation.jobID, { onSuccess: close })}
      >
        <p>
          Nodes that have not started stay unchanged; nodes in progress are stopped. {done} of {plural(total, "node")}{" "}
          done. Completed nodes go back to what was desired before; only a first install stays, and what a completed
          rollout has changed.
        </p>
        <p>Downloaded data is kept for at least a day. A retry continues from there.</p>
      </ConfirmDialog>
    </>
  );
}
