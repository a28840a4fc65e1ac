/** The models, backends, logs and placement decisions of a node. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "@/api/client";
import type { NodeBackend, Replica, NodeExplanation } from "@/api/types";
import { Button } from "@/components/Button";
import { QueryResult, PanelSection, type Query } from "@/components/PanelParts";
import { Pill } from "@/components/Pill";
import { modelQueries } from "@/data/models";
import { REPLICA_WORDS } from "@/data/modelState";
import type { SeenNode } from "@/data/nodes";
import { formatBytes } from "@/format/bytes";
import { plural, sentence } from "@/format/text";
import { formatDateTime } from "@/format/time";
import { LogsDialog } from "./LogsDialog";
import { NodeHistory } from "./NodeHistory";
import styles from "./NodeInside.module.css";

const insideQueries = {
  backends: (id: string) =>
    queryOptions({ queryKey: ["node-backends", id], queryFn: ({ signal }) => api.listNodeBackends(id, signal) }),
  why: (id: string) =>
    queryOptions({
      queryKey: ["why-node", id],
      queryFn: ({ signal }) => api.whyNode(id, signal),
      refetchInterval: 30_000,
    }),
};

export function NodeInside({ node }: { node: SeenNode }) {
  const replicas = useQuery({
    ...modelQueries.replicas(),
    select: (all) => all.filter(({ node_id }) => node_id === node.id),
  });
  const backends = useQuery(insideQueries.backends(node.id));
  const why = useQuery(insideQueries.why(node.id));
  const [showLogs, setShowLogs] = useState(false);
  return (
    <>
      <NodeHistory node={node} />
      <PanelSection title="Processes">
        <Listed query={replicas} empty="No models running on this node.">
          {(found) => (
            <ul className={styles.list}>
              {found.map((replica) => (
                <Process key={replica.id} replica={replica} />
              ))}
            </ul>
          )}
        </Listed>
        <p className={styles.logs}>
          <Button size="small" icon="activity" onClick={() => setShowLogs(true)}>
            Live logs
          </Button>
        </p>
      </PanelSection>
      <PanelSection title="Backends">
        <Listed query={backends} empty="No backends installed on this node.">
          {(found) => (
            <ul className={styles.list}>
              {found.map((backend) => (
                <Backend key={backend.name} backend={backend} />
              ))}
            </ul>
          )}
        </Listed>
      </PanelSection>
      <PanelSection title="Placement decisions">
        <QueryResult query={why}>{(data) => <Decisions why={data} />}</QueryResult>
      </PanelSection>
      <LogsDialog open={showLogs} nodeId={node.id} nodeName={node.name} onClose={() => setShowLogs(false)} />
    </>
  );
}

interface ListedProps<T> {
  query: Query<T[]>;
  empty: string;
  children: (found: T[]) => React.ReactNode;
}

function Listed<T>({ query, empty, children }: ListedProps<T>) {
  return (
    <QueryResult query={query}>
      {(found) => (found.length === 0 ? <p className={styles.soft}>{empty}</p> : children(found))}
    </QueryResult>
  );
}

function Process({ replica }: { replica: Replica }) {
  const { word, tone } = REPLICA_WORDS[replica.corral_state];
  return (
    <li>
      <Link to="/models" search={{ open: replica.model_name }}>
        {replica.model_name}#{replica.replica_index}
      </Link>{" "}
      <Pill tone={tone}>{word}</Pill>
      <span className={styles.facts}>
        {[
          replica.backend_type ?? "",
          replica.address,
          `${replica.in_flight} in flight${replica.capacity ? ` of ${replica.capacity}` : ""}`,
          replica.memory_bytes ? `${formatBytes(replica.memory_bytes)} reserved` : "",
        ]
          .filter(Boolean)
          .join(" · ")}
      </span>
      {replica.reason ? <span className={styles.facts}>{sentence(replica.reason)}</span> : null}
    </li>
  );
}

function Backend({ backend }: { backend: NodeBackend }) {
  const older = (backend.versions?.length ?? 1) - 1;
  return (
    <li>
      <strong>{backend.name}</strong> <code>{backend.version ?? backend.digest?.slice(7, 19) ?? ""}</code>
      <span className={styles.facts}>
        {[
          backend.is_system ? "system backend" : "",
          backend.concrete ? `build ${backend.concrete}` : "",
          older > 0 ? `${plural(older, "older version")} on disk` : "",
          backend.installed_at ? `since ${formatDateTime(backend.installed_at)}` : "",
        ]
          .filter(Boolean)
          .join(" · ")}
      </span>
      {backend.problem ? <span className={styles.problem}>{sentence(backend.problem)}</span> : null}
    </li>
  );
}

function Decisions({ why }: { why: NodeExplanation }) {
  const considered = why.decisions.filter(({ verdict }) => verdict !== "not considered").slice(0, 8);
  if (considered.length === 0) return <p className={styles.soft}>No placement has considered this node yet.</p>;
  return (
    <ul className={styles.list}>
      {considered.map((decision, index) => (
        <li key={index}>
          {decision.model}: <strong>{decision.verdict.replaceAll("_", " ")}</strong>
          {decision.reason === "" ? "" : `, ${decision.reason}`}
          <span className={styles.facts}>
            cause: {decision.cause}, {formatDateTime(decision.at)}
          </span>
        </li>
      ))}
    </ul>
  );
}
