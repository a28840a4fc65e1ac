import { queryOptions, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api } from "@/api/client";
import { streamLog } from "@/api/logStream";
import type { LogLine } from "@/api/types";
import { Empty, InlineError, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Select } from "@/components/Choice";
import { cx } from "@/components/cx";
import { Dialog } from "@/components/Dialog";
import { Pill } from "@/components/Pill";
import { formatClockMs } from "@/format/time";
import styles from "./LogsDialog.module.css";

/** As many lines as the worker keeps of one process; more would slow down the page. */
const MOST_LINES = 1000;

const logsQuery = (nodeId: string) =>
  queryOptions({ queryKey: ["node-logs", nodeId], queryFn: ({ signal }) => api.listNodeLogs(nodeId, signal) });

interface LogsDialogProps {
  open: boolean;
  nodeId: string;
  nodeName: string;
  onClose: () => void;
}

export function LogsDialog({ open, nodeId, nodeName, onClose }: LogsDialogProps) {
  return (
    <Dialog open={open} onClose={onClose} wide title={`Logs of ${nodeName}`}>
      {open ? <Logs nodeId={nodeId} /> : null}
    </Dialog>
  );
}

function Logs({ nodeId }: { nodeId: string }) {
  const keys = useQuery(logsQuery(nodeId));
  const [chosen, setChosen] = useState<string | null>(null);
  if (keys.data === undefined) {
    if (keys.isPending) return <Loading what="logs" />;
    return (
      <Problem
        title="Could not load logs"
        error={keys.error}
        retrying={keys.isFetching}
        onRetry={() => void keys.refetch()}
      />
    );
  }
  const key = chosen ?? keys.data[0];
  if (key === undefined)
    return <Empty icon="activity" title="No logs yet" hint="Processes start when a model is loaded on this node." />;
  return (
    <>
      <Select
        label="Process"
        value={key}
        options={keys.data.map((value) => ({ value, word: value }))}
        onChange={setChosen}
      />
      <Stream key={`${nodeId} ${key}`} nodeId={nodeId} processKey={key} />
    </>
  );
}

type StreamState = { state: "connecting" | "live" | "ended" } | { state: "failed"; error: unknown };

function Stream({ nodeId, processKey }: { nodeId: string; processKey: string }) {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [stream, setStream] = useState<StreamState>({ state: "connecting" });
  const [attempt, setAttempt] = useState(0);
  const pane = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);

  useEffect(() => {
    const stop = new AbortController();
    streamLog(
      nodeId,
      processKey,
      {
        onInitial: (initial) => {
          setStream({ state: "live" });
          setLines(initial.slice(-MOST_LINES));
        },
        onLines: (more) => setLines((before) => [...before, ...more].slice(-MOST_LINES)),
      },
      stop.signal,
    ).then(
      () => !stop.signal.aborted && setStream({ state: "ended" }),
      (error: unknown) => !stop.signal.aborted && setStream({ state: "failed", error }),
    );
    return () => stop.abort();
  }, [nodeId, processKey, attempt]);

  function retry() {
    setStream({ state: "connecting" });
    setAttempt(attempt + 1);
  }

  // Follows new lines until the reader scrolls away from the end.
  useEffect(() => {
    if (pane.current !== null && isAtEnd.current) pane.current.scrollTop = pane.current.scrollHeight;
  }, [lines]);

  return (
    <>
      <p className={styles.state}>
        {stream.state === "live" ? (
          <Pill tone="green">Live</Pill>
        ) : stream.state === "connecting" ? (
          <Pill tone="blue">Connecting</Pill>
        ) : (
          <Pill tone="grey">Ended</Pill>
        )}
        {stream.state === "ended" || stream.state === "failed" ? (
          <Button size="small" icon="retry" onClick={retry}>
            Reconnect
          </Button>
        ) : null}
      </p>
      {stream.state === "failed" ? <InlineError error={stream.error} /> : null}
      <pre
        ref={pane}
        className={styles.pane}
        tabIndex={0}
        role="log"
        aria-label={`Log of ${processKey}`}
        aria-live="off"
        onScroll={(event) => {
          const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < 30;
        }}
      >
        {lines.length === 0 && stream.state === "live" ? "No output yet." : null}
        {lines.map((each, index) => (
          <span key={index} className={cx(styles.line, each.stream === "stderr" && styles.stderr)}>
            <span className={styles.time}>{formatClockMs(each.timestamp)} </span>
            {each.text}
            {"\n"}
          </span>
        ))}
      </pre>
    </>
  );
}
