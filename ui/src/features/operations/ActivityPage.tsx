import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { HistoryEntry, Intent } from "@/api/types";
import { Empty, InlineError, Loading, messageOf, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Filters } from "@/components/Filters";
import { Icon } from "@/components/Icon";
import { Card, Page } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { SearchField } from "@/components/SearchField";
import { Tabs } from "@/components/Tabs";
import { useAnnounce } from "@/components/Toasts";
import { cx } from "@/components/cx";
import { useHeldNodes, useNodeNames } from "@/data/nodes";
import { operationQueries, useClearHistory, useRetry, type SeenOperation } from "@/data/operations";
import { plural, sentence } from "@/format/text";
import { formatDateTime, formatDuration } from "@/format/time";
import styles from "./ActivityPage.module.css";
import {
  readActivity,
  withStateToggled,
  type ActivitySearch,
  type ActivityState,
  type ActivityTab,
} from "./activitySearch";
import { NodeRows } from "./NodeRows";
import { CancelButton } from "./OperationsBar";
import { STATE_WORDS, stateOf, stateTone, summaryOf, titleOf, verbWord } from "./words";

const route = getRouteApi("/activity");

export function ActivityPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { tab, text, states } = readActivity(search);
  const running = useQuery(operationQueries.list());
  const history = useQuery(operationQueries.history());
  const exhausted = useQuery(operationQueries.exhausted());
  const nameOf = useNodeNames();
  const open = useMemo(
    () => running.data?.filter(({ finished_at, state }) => finished_at === null || state === "failed"),
    [running.data],
  );

  const kinds =
    tab === "running"
      ? open?.map(openState)
      : tab === "finished"
        ? history.data?.map(({ outcome }) => outcome)
        : undefined;
  const isShown = (state: string) => states.length === 0 || states.some((each) => each === state);

  const show = (change: ActivitySearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  const showAll = () => show({ q: "", state: "" });

  return (
    <Page
      title="Activity"
      actions={tab === "finished" && history.data?.length ? <ClearHistory /> : undefined}
      toolbar={
        <>
          <Tabs<ActivityTab>
            label="Activity views"
            value={tab}
            onChange={(next) => show({ tab: next, state: "" })}
            tabs={[
              { value: "running", word: "Running and failed", count: open?.length },
              { value: "finished", word: "Finished", count: history.data?.length },
              { value: "exhausted", word: "Needs manual retry", count: exhausted.data?.length },
            ]}
          />
          <SearchField
            label="Filter activity"
            placeholder="Backend, action, user, outcome…"
            text={text}
            onText={(next) => show({ q: next }, true)}
          />
          {kinds === undefined || kinds.length === 0 ? null : (
            <Filters<ActivityState>
              label="Show by state"
              options={SHOWN_STATES[tab].map((state) => ({
                value: state,
                word: STATE_WORDS[state] ?? state,
                count: kinds.filter((kind) => kind === state).length,
              }))}
              chosen={states}
              total={kinds.length}
              onToggle={(state) => show(withStateToggled(search, state))}
              onAll={() => show({ state: "" })}
            />
          )}
        </>
      }
    >
      {tab === "running" ? (
        <Section
          query={running}
          what="operations"
          items={open}
          onAll={showAll}
          text={text}
          textOf={operationText}
          isShown={(each) => isShown(openState(each))}
          empty={<NothingRuns />}
        >
          {(items) => items.map((operation) => <RunningCard key={operation.jobID} operation={operation} />)}
        </Section>
      ) : tab === "finished" ? (
        <Section
          query={history}
          what="finished operations"
          items={history.data}
          onAll={showAll}
          text={text}
          textOf={historyText}
          isShown={({ outcome }) => isShown(outcome)}
          empty={<NothingFinished />}
        >
          {(items) => (
            <Card>
              <ul>
                {items.map((entry) => (
                  <HistoryRow
                    key={entry.jobID}
                    entry={entry}
                    isOpen={search.open === entry.jobID}
                    onToggle={() => show({ open: search.open === entry.jobID ? undefined : entry.jobID })}
                  />
                ))}
              </ul>
            </Card>
          )}
        </Section>
      ) : (
        <Section
          query={exhausted}
          what="changes that need a manual retry"
          items={exhausted.data}
          onAll={showAll}
          text={text}
          textOf={(each) => intentText(each, nameOf(each.node_id))}
          empty={<NothingExhausted />}
        >
          {(items) => <Exhausted items={items} />}
        </Section>
      )}
    </Page>
  );
}

interface SectionProps<T> {
  query: { isPending: boolean; isError: boolean; error: unknown; isFetching: boolean; refetch: () => unknown };
  what: string;
  items: T[] | undefined;
  text: string;
  textOf: (item: T) => string;
  isShown?: (item: T) => boolean;
  onAll: () => void;
  empty: React.ReactNode;
  children: (items: T[]) => React.ReactNode;
}

/** One list with its four states: loading, failed, empty, full. */
function Section<T>({
  query,
  what,
  items,
  text,
  textOf,
  isShown = () => true,
  onAll,
  empty,
  children,
}: SectionProps<T>) {
  if (items === undefined) {
    if (query.isPending) return <Loading what={what} />;
    return (
      <Problem
        title={`Could not load ${what}`}
        error={query.error}
        retrying={query.isFetching}
        onRetry={() => void query.refetch()}
      />
    );
  }
  if (items.length === 0) return empty;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = items.filter(
    (item) => isShown(item) && words.every((word) => textOf(item).toLowerCase().includes(word)),
  );
  if (found.length === 0) {
    return (
      <Empty
        icon="search"
        title="No matches"
        hint={`None of ${plural(items.length, "entry", "entries")} matches the filter.`}
      >
        <Button onClick={onAll}>Show all</Button>
      </Empty>
    );
  }
  return children(found);
}

/** The state filters of each tab. Everything that needs a manual retry has failed. */
const SHOWN_STATES: Record<ActivityTab, readonly ActivityState[]> = {
  running: ["running", "failed"],
  finished: ["completed", "failed", "cancelled"],
  exhausted: [],
};

/** An operation with a failed node counts as failed, also while it is retried. */
const openState = (operation: SeenOperation): ActivityState =>
  operation.retrying || operation.nodes.some(({ status }) => status === "error") ? "failed" : "running";

const operationText = (each: SeenOperation) =>
  `${titleOf(each)} ${each.state} ${each.actor} ${each.cause} ${each.nodes.map(({ node_name }) => node_name).join(" ")}`;
const historyText = (each: HistoryEntry) =>
  `${verbWord(each.verb)} ${each.name} ${each.outcome} ${each.actor} ${each.error}`;
const intentText = (each: Intent, node: string) => `${verbWord(each.verb)} ${each.backend} ${each.error} ${node}`;

const NothingRuns = () => (
  <Empty
    icon="activity"
    title="No operations in progress"
    hint="Install or upgrade a backend to see its progress on each node here and at the top of every page."
  />
);
const NothingFinished = () => (
  <Empty
    icon="activity"
    title="No finished operations"
    hint="The last 50 finished operations are listed here, with who requested them."
  />
);
const NothingExhausted = () => (
  <Empty
    icon="approve"
    title="Nothing needs a manual retry"
    hint="Changes whose automatic retries on a node are exhausted are listed here, with the error and a Retry button."
  />
);

function Meta({ actor, cause, at }: { actor: string; cause: string; at: string | null }) {
  return (
    <span className={styles.meta}>
      by {actor}
      {cause === "request" || cause === "" ? "" : ` (${cause})`}, {formatDateTime(at)}
    </span>
  );
}

function RunningCard({ operation }: { operation: SeenOperation }) {
  const retry = useRetry();
  const state = stateOf(operation, useHeldNodes());
  return (
    <Card
      title={
        <span className={styles.title}>
          {titleOf(operation)} <Pill tone={state.tone}>{state.word}</Pill>
        </span>
      }
      actions={
        <>
          {operation.error === "" ? null : (
            <Button
              size="small"
              icon="retry"
              busy={retry.isPending}
              onClick={() => retry.mutate({ id: operation.jobID })}
            >
              Retry failed
            </Button>
          )}
          {operation.cancellable ? <CancelButton operation={operation} /> : null}
        </>
      }
    >
      <p className={styles.line}>
        {summaryOf(operation)} <Meta actor={operation.actor} cause={operation.cause} at={operation.created_at} />
      </p>
      {retry.isError ? <InlineError error={retry.error} /> : null}
      <NodeRows
        operationId={operation.jobID}
        verb={operation.verb}
        nodes={operation.nodes}
        isOver={operation.finished_at !== null}
      />
    </Card>
  );
}

function HistoryRow({ entry, isOpen, onToggle }: { entry: HistoryEntry; isOpen: boolean; onToggle: () => void }) {
  const took =
    entry.startedAt === null || entry.finishedAt === null
      ? null
      : (Date.parse(entry.finishedAt) - Date.parse(entry.startedAt)) / 1000;
  return (
    <li className={styles.entry}>
      <button type="button" className={styles.entryHead} aria-expanded={isOpen} onClick={onToggle}>
        <span className={cx(styles.turn, isOpen && styles.turned)}>
          <Icon name="chevron" size={14} />
        </span>
        <span className={styles.what}>
          {verbWord(entry.verb)} {entry.name}
        </span>
        <Pill tone={stateTone(entry.outcome)}>{STATE_WORDS[entry.outcome] ?? entry.outcome}</Pill>
        <span className={styles.meta}>
          by {entry.actor}, {formatDateTime(entry.finishedAt)}
          {took === null ? "" : `, took ${formatDuration(took)}`}
        </span>
      </button>
      {entry.error === "" ? null : (
        <p className={entry.outcome === "cancelled" ? styles.said : styles.error}>{sentence(entry.error)}</p>
      )}
      {isOpen ? <Details id={entry.jobID} failed={entry.outcome === "failed"} /> : null}
    </li>
  );
}

function Details({ id, failed }: { id: string; failed: boolean }) {
  const operation = useQuery(operationQueries.one(id));
  const retry = useRetry();
  if (operation.isPending) return <Loading what="details" />;
  if (operation.isError)
    return <Problem title="Could not load details" error={operation.error} onRetry={() => void operation.refetch()} />;
  return (
    <div className={styles.details}>
      <p className={styles.line}>
        {summaryOf(operation.data)}
        {failed ? (
          <Button size="small" icon="retry" busy={retry.isPending} onClick={() => retry.mutate({ id })}>
            Retry
          </Button>
        ) : null}
      </p>
      {retry.isError ? <InlineError error={retry.error} /> : null}
      <NodeRows operationId={id} verb={operation.data.verb} nodes={operation.data.nodes} isOver />
    </div>
  );
}

function Exhausted({ items }: { items: Intent[] }) {
  const nameOf = useNodeNames();
  const retry = useRetry();
  const announce = useAnnounce();
  return (
    <Card>
      <p className={styles.explained}>
        Automatic retries are exhausted. Fix the cause, then retry. A retry starts immediately and gets the same number
        of attempts. Requesting another change for the same backend and node replaces the failed one.
      </p>
      <ul>
        {items.map((intent) => (
          <li key={intent.id} className={styles.exhausted}>
            <span className={styles.exhaustedHead}>
              <strong>
                {verbWord(intent.verb)} {intent.backend}
              </strong>{" "}
              on <strong>{nameOf(intent.node_id)}</strong>
              <span className={styles.meta}>
                failed after {plural(intent.attempts, "attempt")}, {formatDateTime(intent.finished_at)}
              </span>
            </span>
            <Button
              size="small"
              icon="retry"
              busy={
                retry.isPending &&
                retry.variables.id === intent.operation_id &&
                retry.variables.nodeId === intent.node_id
              }
              aria-label={`Retry ${intent.backend} on ${nameOf(intent.node_id)}`}
              onClick={() =>
                retry.mutate(
                  { id: intent.operation_id, nodeId: intent.node_id },
                  {
                    onSuccess: () => announce.done(`Retrying ${intent.backend} on ${nameOf(intent.node_id)}.`),
                    onError: (error) =>
                      announce.failed(
                        `Could not retry ${intent.backend} on ${nameOf(intent.node_id)}.`,
                        messageOf(error),
                      ),
                  },
                )
              }
            >
              Retry
            </Button>
            <p className={styles.error}>{sentence(intent.error)}</p>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function ClearHistory() {
  const [asking, setAsking] = useState(false);
  const clear = useClearHistory();
  return (
    <>
      <Button icon="remove" onClick={() => setAsking(true)}>
        Clear
      </Button>
      <ConfirmDialog
        open={asking}
        onClose={() => setAsking(false)}
        title="Clear finished operations?"
        action="Clear"
        danger
        busy={clear.isPending}
        error={clear.error}
        onConfirm={() => clear.mutate(undefined, { onSuccess: () => setAsking(false) })}
      >
        <p>
          They are removed from this list for everyone. Their changes are not reverted, and the audit log keeps who
          requested them.
        </p>
      </ConfirmDialog>
    </>
  );
}
