import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Icon } from "@/components/Icon";
import { Card } from "@/components/Page";
import { useAnnounce } from "@/components/Toasts";
import { backendQueries } from "@/data/backends";
import { modelQueries } from "@/data/models";
import { nodeQueries, type SeenNode } from "@/data/nodes";
import { operationQueries, useRetry } from "@/data/operations";
import { plural, sentence } from "@/format/text";
import styles from "./Attention.module.css";

const MOST_LISTED = 5;

/** What a person should look at, each with what can be done about it. */
export function Attention({ nodes }: { nodes: readonly SeenNode[] }) {
  const dead = useQuery(operationQueries.deadLetters()).data ?? [];
  const fleet = useQuery(backendQueries.fleet()).data ?? [];
  const upgrades = useQuery(backendQueries.upgrades()).data ?? {};
  const scheduling = useQuery(modelQueries.scheduling()).data ?? [];
  const nameOf = (id: string) => nodes.find((node) => node.id === id)?.name ?? id;

  const pending = nodes.filter(({ approved }) => !approved);
  const away = nodes.filter(({ approved, status }) => approved && (status === "offline" || status === "unhealthy"));
  const drifting = fleet.flatMap((backend) => backend.nodes.filter(({ drift }) => drift.length > 0).map((place) => ({ backend: backend.name, place })));
  const short = scheduling.filter(({ unsatisfiable_reason }) => unsatisfiable_reason !== undefined);
  const upgradable = Object.keys(upgrades);
  const isCalm = [pending, away, dead, drifting, short, upgradable].every((found) => found.length === 0);

  return (
    <Card title="Needs attention">
      {isCalm ? (
        <p className={styles.calm}>
          <Icon name="approve" /> Nothing does: every machine is here, and everything is as it was wanted.
        </p>
      ) : (
        <ul className={styles.list}>
          {pending.slice(0, MOST_LISTED).map((node) => (
            <Item key={node.id} tone="wait" text={<>{node.name} asks to join</>} action={<Approve node={node} />} />
          ))}
          <Rest count={pending.length} what="machines ask to join" to={<Link to="/nodes" search={{ status: "pending" }}>Show them</Link>} />
          {dead.slice(0, MOST_LISTED).map((intent) => (
            <Item
              key={intent.id}
              tone="bad"
              text={
                <>
                  {sentence(intent.verb)} of {intent.backend} on {nameOf(intent.node_id)} failed for good
                  <span className={styles.detail}>{sentence(intent.error)}</span>
                </>
              }
              action={<Retry id={intent.operation_id} nodeId={intent.node_id} what={`${intent.backend} on ${nameOf(intent.node_id)}`} />}
            />
          ))}
          <Rest count={dead.length} what="dead letters" to={<Link to="/activity" search={{ tab: "dead" }}>Show them</Link>} />
          {short.map((each) => (
            <Item
              key={each.model_name}
              tone="warn"
              text={
                <>
                  {each.model_name} cannot be as wanted
                  <span className={styles.detail}>{sentence(each.unsatisfiable_reason ?? "")}</span>
                </>
              }
              action={<Link to="/models" search={{ open: each.model_name }}>Change it</Link>}
            />
          ))}
          {drifting.slice(0, MOST_LISTED).map(({ backend, place }) => (
            <Item
              key={`${backend} ${place.node_id}`}
              tone="warn"
              text={
                <>
                  {backend} on {place.node_name} differs from what is wanted
                  <span className={styles.detail}>{place.drift.map(({ detail }) => sentence(detail)).join(" ")}</span>
                </>
              }
              action={<Link to="/backends" search={{ q: place.node_name }}>Look</Link>}
            />
          ))}
          <Rest count={drifting.length} what="places differ" to={<Link to="/backends">Show them</Link>} />
          {upgradable.length > 0 ? (
            <Item tone="wait" text={<>{plural(upgradable.length, "backend has", "backends have")} an upgrade: {upgradable.slice(0, 6).join(", ")}</>} action={<Link to="/backends">Upgrade</Link>} />
          ) : null}
          {away.slice(0, MOST_LISTED).map((node) => (
            <Item
              key={node.id}
              tone={node.status === "offline" ? "bad" : "warn"}
              text={
                <>
                  {node.name} is {node.status}
                  {node.status_reason === "" ? null : <span className={styles.detail}>{sentence(node.status_reason)}</span>}
                </>
              }
              action={
                <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
                  Look
                </Link>
              }
            />
          ))}
          <Rest count={away.length} what="machines are away" to={<Link to="/nodes" search={{ status: "unhealthy,offline" }}>Show them</Link>} />
        </ul>
      )}
    </Card>
  );
}

function Item({ tone, text, action }: { tone: "wait" | "warn" | "bad"; text: ReactNode; action: ReactNode }) {
  return (
    <li className={styles.item}>
      <span className={styles[tone]}>
        <Icon name={tone === "wait" ? "computer" : "warning"} />
      </span>
      <span className={styles.text}>{text}</span>
      <span className={styles.action}>{action}</span>
    </li>
  );
}

function Rest({ count, what, to }: { count: number; what: string; to: ReactNode }) {
  if (count <= MOST_LISTED) return null;
  return <Item tone="wait" text={`${count - MOST_LISTED} more ${what}`} action={to} />;
}

function Approve({ node }: { node: SeenNode }) {
  const client = useQueryClient();
  const announce = useAnnounce();
  const approve = useMutation({
    mutationFn: () => api.approveNode(node.id),
    onSettled: () => client.invalidateQueries({ queryKey: nodeQueries.list().queryKey }),
    onError: (error) => announce.failed(`${node.name} could not be approved.`, messageOf(error)),
  });
  return (
    <Button size="small" look="primary" icon="approve" busy={approve.isPending} aria-label={`Approve ${node.name}`} onClick={() => approve.mutate()}>
      Approve
    </Button>
  );
}

function Retry({ id, nodeId, what }: { id: string; nodeId: string; what: string }) {
  const retry = useRetry();
  const announce = useAnnounce();
  return (
    <Button
      size="small"
      icon="retry"
      busy={retry.isPending}
      aria-label={`Retry ${what}`}
      onClick={() => retry.mutate({ id, nodeId }, { onError: (error) => announce.failed("It could not be tried again.", messageOf(error)) })}
    >
      Retry
    </Button>
  );
}
