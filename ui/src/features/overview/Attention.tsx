import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { messageOf } from "@/components/Answers";
import { Icon } from "@/components/Icon";
import { Card } from "@/components/Page";
import { backendQueries } from "@/data/backends";
import { modelQueries } from "@/data/models";
import { isOffline, isUnhealthy, useHeldNodes, type SeenNode } from "@/data/nodes";
import { operationQueries } from "@/data/operations";
import { rolloutQueries } from "@/data/rollouts";
import { systemQueries } from "@/data/system";
import { closed, plural, sentence, stopped } from "@/format/text";
import styles from "./Attention.module.css";
import { Approve, Item, MOST_LISTED, Rest, Retry, TryAgain } from "./AttentionParts";
import {
  driftingPlaces,
  failingOperations,
  failureDetail,
  failureWord,
  identityConcerns,
  modelConcerns,
  pendingEdits,
  rolloutConcerns,
  slowBuildConcerns,
  upgradableBackends,
  type ModelConcern,
} from "./concerns";

/** Problems that a person should look at, each with an action. */
export function Attention({ nodes }: { nodes: readonly SeenNode[] }) {
  const queries = {
    status: useQuery(systemQueries.status()),
    operations: useQuery(operationQueries.list()),
    "changes that need a manual retry": useQuery(operationQueries.exhausted()),
    backends: useQuery(backendQueries.fleet()),
    rollouts: useQuery(rolloutQueries.list()),
    upgrades: useQuery(backendQueries.upgrades()),
    "slow builds": useQuery(backendQueries.slow()),
    models: useQuery(modelQueries.summary()),
    "model list": useQuery(modelQueries.list()),
    replicas: useQuery(modelQueries.replicas()),
    scheduling: useQuery(modelQueries.scheduling()),
  };
  const unread = Object.entries(queries).filter(([, { data }]) => data === undefined);
  const nameOf = (id: string) => nodes.find((node) => node.id === id)?.name ?? id;

  const bus = queries.status.data?.bus;
  const pending = nodes.filter(({ approved }) => !approved);
  const held = useHeldNodes();
  const claimed = identityConcerns(nodes);
  const unavailable = nodes.filter((node) => isOffline(node) || isUnhealthy(node));
  const exhausted = queries["changes that need a manual retry"].data ?? [];
  const failing = failingOperations(queries.operations.data ?? [], exhausted);
  const models = modelConcerns(queries.models.data ?? {}, queries.replicas.data ?? [], queries.scheduling.data ?? []);
  const edits = pendingEdits(queries["model list"].data ?? []);
  const drifting = driftingPlaces(queries.backends.data ?? [], exhausted);
  const upgradable = upgradableBackends(queries.upgrades.data ?? {});
  const rollouts = rolloutConcerns(queries.rollouts.data?.rollouts ?? []);
  const slow = slowBuildConcerns(queries["slow builds"].data ?? []);
  const isBusGone = bus?.connected === false;
  const isCalm =
    !isBusGone &&
    [
      unread,
      pending,
      claimed,
      unavailable,
      exhausted,
      failing,
      models,
      edits,
      drifting,
      rollouts,
      slow,
      upgradable,
    ].every((found) => found.length === 0);

  return (
    <Card title="Needs attention">
      {isCalm ? (
        <p className={styles.calm}>
          <Icon name="approve" /> Nothing needs attention. All nodes are online and match the desired state.
        </p>
      ) : (
        <ul className={styles.list}>
          {unread.some(([, { isPending }]) => isPending) ? <Item tone="wait" text="Loading more…" /> : null}
          {unread.map(([what, { error, isFetching, refetch }]) =>
            error === null ? null : (
              <Item
                key={what}
                tone="bad"
                text={`Could not load ${what}`}
                detail={messageOf(error)}
                action={<TryAgain what={what} busy={isFetching} onClick={() => void refetch()} />}
              />
            ),
          )}
          {isBusGone ? (
            <Item
              tone="bad"
              text="This frontend is not connected to the message bus"
              detail={closed(bus.problem)}
              action={<Link to="/system">View</Link>}
            />
          ) : null}
          {pending.slice(0, MOST_LISTED).map((node) => (
            <Item
              key={node.id}
              tone="wait"
              text={`${node.name} is waiting for approval`}
              action={<Approve node={node} />}
            />
          ))}
          <Rest
            count={pending.length}
            what="nodes are waiting for approval"
            to={
              <Link to="/nodes" search={{ status: "pending" }}>
                Show all
              </Link>
            }
          />
          {claimed.slice(0, MOST_LISTED).map(({ id, text, detail }) => (
            <Item
              key={`claimed ${id}`}
              tone="bad"
              text={text}
              detail={detail}
              action={<NodeLink id={id}>Resolve</NodeLink>}
            />
          ))}
          <Rest count={claimed.length} what="nodes have a duplicate identity" to={<Link to="/nodes">Show all</Link>} />
          {failing.slice(0, MOST_LISTED).map((operation) => (
            <Item
              key={operation.jobID}
              tone="bad"
              text={sentence(`${operation.verb} of ${operation.name} ${failureWord(operation, held)}`)}
              detail={failureDetail(operation, exhausted)}
              action={<Retry id={operation.jobID} what={`${operation.verb} of ${operation.name}`} />}
            />
          ))}
          <Rest count={failing.length} what="operations failed" to={<Link to="/activity">Show all</Link>} />
          {exhausted.slice(0, MOST_LISTED).map((intent) => (
            <Item
              key={intent.id}
              tone="bad"
              text={sentence(
                `${intent.verb} of ${intent.backend} on ${nameOf(intent.node_id)} failed: retries exhausted`,
              )}
              detail={`${closed(intent.error)} ${plural(intent.attempts, "attempt")} failed. Fix the cause, then retry.`}
              action={
                <Retry
                  id={intent.operation_id}
                  nodeId={intent.node_id}
                  what={`${intent.backend} on ${nameOf(intent.node_id)}`}
                />
              }
            />
          ))}
          <Rest
            count={exhausted.length}
            what="changes need a manual retry"
            to={
              <Link to="/activity" search={{ tab: "exhausted" }}>
                Show all
              </Link>
            }
          />
          {rollouts.slice(0, MOST_LISTED).map(({ id, tone, text, detail }) => (
            <Item
              key={`rollout ${id}`}
              tone={tone}
              text={text}
              detail={detail}
              action={
                <Link to="/rollouts/$rolloutId" params={{ rolloutId: id }}>
                  View
                </Link>
              }
            />
          ))}
          <Rest count={rollouts.length} what="rollouts need attention" to={<Link to="/rollouts">Show all</Link>} />
          <ModelItems concerns={models} />
          <Rest count={models.length} what="models below desired replicas" to={<Link to="/models">Show all</Link>} />
          <ModelItems concerns={edits} />
          <Rest count={edits.length} what="model edits could not be loaded" to={<Link to="/models">Show all</Link>} />
          {drifting.slice(0, MOST_LISTED).map(({ backend, place }) => (
            <Item
              key={`${backend} ${place.node_id}`}
              tone="warn"
              text={`${backend} on ${place.node_name} has drifted from its policy`}
              detail={place.drift.map(({ detail }) => stopped(sentence(detail, backend))).join(" ")}
              action={
                <Link to="/backends" search={{ q: place.node_name }}>
                  View
                </Link>
              }
            />
          ))}
          <Rest count={drifting.length} what="drifted backends" to={<Link to="/backends">Show all</Link>} />
          {slow.slice(0, MOST_LISTED).map(({ key, node, text, detail }) => (
            <Item
              key={key}
              tone="warn"
              text={text}
              detail={detail}
              action={
                <Link to="/backends" search={{ q: node }}>
                  View
                </Link>
              }
            />
          ))}
          <Rest count={slow.length} what="backends run on the CPU" to={<Link to="/backends">Show all</Link>} />
          {upgradable.length > 0 ? (
            <Item
              tone="wait"
              text={`${plural(upgradable.length, "backend can be upgraded", "backends can be upgraded")}: ${upgradable.slice(0, 6).join(", ")}`}
              action={<Link to="/backends">Upgrade</Link>}
            />
          ) : null}
          {unavailable.slice(0, MOST_LISTED).map((node) => (
            <Item
              key={node.id}
              tone={node.state === "offline" ? "bad" : "warn"}
              text={`${node.name} is ${node.state}`}
              detail={sentence(node.status_reason)}
              action={<NodeLink id={node.id}>View</NodeLink>}
            />
          ))}
          <Rest
            count={unavailable.length}
            what="nodes are offline or unhealthy"
            to={
              <Link to="/nodes" search={{ status: "unhealthy,offline" }}>
                Show all
              </Link>
            }
          />
        </ul>
      )}
    </Card>
  );
}

/** The first few models that need attention, each with a link to its panel. */
function ModelItems({ concerns }: { concerns: readonly ModelConcern[] }) {
  return concerns.slice(0, MOST_LISTED).map(({ model, tone, text, detail }) => (
    <Item
      key={model}
      tone={tone}
      text={text}
      detail={detail}
      action={
        <Link to="/models" search={{ open: model }}>
          View
        </Link>
      }
    />
  ));
}

function NodeLink({ id, children }: { id: string; children: string }) {
  return (
    <Link to="/nodes/$nodeId" params={{ nodeId: id }}>
      {children}
    </Link>
  );
}
