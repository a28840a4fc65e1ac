import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { messageOf } from "@/components/Answers";
import { Icon } from "@/components/Icon";
import { Card } from "@/components/Page";
import { backendQueries } from "@/data/backends";
import { modelQueries } from "@/data/models";
import { isAway, isUnfit, useHeldNodes, type SeenNode } from "@/data/nodes";
import { operationQueries } from "@/data/operations";
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
  upgradableBackends,
} from "./concerns";

/** What a person should look at, each with what can be done about it. */
export function Attention({ nodes }: { nodes: readonly SeenNode[] }) {
  const asked = {
    status: useQuery(systemQueries.status()),
    operations: useQuery(operationQueries.list()),
    "orders that were given up": useQuery(operationQueries.givenUp()),
    backends: useQuery(backendQueries.fleet()),
    upgrades: useQuery(backendQueries.upgrades()),
    models: useQuery(modelQueries.summary()),
    "model list": useQuery(modelQueries.list()),
    replicas: useQuery(modelQueries.replicas()),
    scheduling: useQuery(modelQueries.scheduling()),
  };
  const unread = Object.entries(asked).filter(([, { data }]) => data === undefined);
  const nameOf = (id: string) => nodes.find((node) => node.id === id)?.name ?? id;

  const bus = asked.status.data?.bus;
  const pending = nodes.filter(({ approved }) => !approved);
  const held = useHeldNodes();
  const claimed = identityConcerns(nodes);
  const away = nodes.filter((node) => isAway(node) || isUnfit(node));
  const givenUp = asked["orders that were given up"].data ?? [];
  const failing = failingOperations(asked.operations.data ?? [], givenUp);
  const models = modelConcerns(asked.models.data ?? {}, asked.replicas.data ?? [], asked.scheduling.data ?? []);
  const edits = pendingEdits(asked["model list"].data ?? []);
  const drifting = driftingPlaces(asked.backends.data ?? [], givenUp);
  const upgradable = upgradableBackends(asked.upgrades.data ?? {});
  const isBusGone = bus?.connected === false;
  const isCalm =
    !isBusGone &&
    [unread, pending, claimed, away, givenUp, failing, models, edits, drifting, upgradable].every(
      (found) => found.length === 0,
    );

  return (
    <Card title="Needs attention">
      {isCalm ? (
        <p className={styles.calm}>
          <Icon name="approve" /> Nothing does: every machine is here, and everything is as it was wanted.
        </p>
      ) : (
        <ul className={styles.list}>
          {unread.some(([, { isPending }]) => isPending) ? <Item tone="wait" text="Looking for more…" /> : null}
          {unread.map(([what, { error, isFetching, refetch }]) =>
            error === null ? null : (
              <Item
                key={what}
                tone="bad"
                text={`The ${what} could not be read`}
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
              action={<Link to="/system">Look</Link>}
            />
          ) : null}
          {pending.slice(0, MOST_LISTED).map((node) => (
            <Item key={node.id} tone="wait" text={`${node.name} asks to join`} action={<Approve node={node} />} />
          ))}
          <Rest
            count={pending.length}
            what="machines ask to join"
            to={
              <Link to="/nodes" search={{ status: "pending" }}>
                Show them
              </Link>
            }
          />
          {claimed.slice(0, MOST_LISTED).map(({ id, text, detail }) => (
            <Item
              key={`claimed ${id}`}
              tone="bad"
              text={text}
              detail={detail}
              action={
                <Link to="/nodes/$nodeId" params={{ nodeId: id }}>
                  Decide
                </Link>
              }
            />
          ))}
          <Rest count={claimed.length} what="nodes' names are claimed" to={<Link to="/nodes">Show them</Link>} />
          {failing.slice(0, MOST_LISTED).map((operation) => (
            <Item
              key={operation.jobID}
              tone="bad"
              text={sentence(`${operation.verb} of ${operation.name} ${failureWord(operation, held)}`)}
              detail={failureDetail(operation, givenUp)}
              action={<Retry id={operation.jobID} what={`${operation.verb} of ${operation.name}`} />}
            />
          ))}
          <Rest count={failing.length} what="operations failed" to={<Link to="/activity">Show them</Link>} />
          {givenUp.slice(0, MOST_LISTED).map((intent) => (
            <Item
              key={intent.id}
              tone="bad"
              text={sentence(`${intent.verb} of ${intent.backend} on ${nameOf(intent.node_id)} was given up`)}
              detail={`${closed(intent.error)} After ${plural(intent.attempts, "attempt")} nothing more happens by itself.`}
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
            count={givenUp.length}
            what="orders were given up"
            to={
              <Link to="/activity" search={{ tab: "gave-up" }}>
                Show them
              </Link>
            }
          />
          {models.slice(0, MOST_LISTED).map(({ model, tone, text, detail }) => (
            <Item
              key={model}
              tone={tone}
              text={text}
              detail={detail}
              action={
                <Link to="/models" search={{ open: model }}>
                  {tone === "wait" ? "Watch" : "Look"}
                </Link>
              }
            />
          ))}
          <Rest count={models.length} what="models are not as wanted" to={<Link to="/models">Show them</Link>} />
          {edits.slice(0, MOST_LISTED).map(({ model, text, detail }) => (
            <Item
              key={model}
              tone="warn"
              text={text}
              detail={detail}
              action={
                <Link to="/models" search={{ open: model }}>
                  Look
                </Link>
              }
            />
          ))}
          <Rest count={edits.length} what="edits could not be loaded" to={<Link to="/models">Show them</Link>} />
          {drifting.slice(0, MOST_LISTED).map(({ backend, place }) => (
            <Item
              key={`${backend} ${place.node_id}`}
              tone="warn"
              text={`${backend} on ${place.node_name} differs from what is wanted`}
              detail={place.drift.map(({ detail }) => stopped(sentence(detail, backend))).join(" ")}
              action={
                <Link to="/backends" search={{ q: place.node_name }}>
                  Look
                </Link>
              }
            />
          ))}
          <Rest count={drifting.length} what="places differ" to={<Link to="/backends">Show them</Link>} />
          {upgradable.length > 0 ? (
            <Item
              tone="wait"
              text={`${plural(upgradable.length, "backend has", "backends have")} an upgrade: ${upgradable.slice(0, 6).join(", ")}`}
              action={<Link to="/backends">Upgrade</Link>}
            />
          ) : null}
          {away.slice(0, MOST_LISTED).map((node) => (
            <Item
              key={node.id}
              tone={node.state === "offline" ? "bad" : "warn"}
              text={`${node.name} is ${node.state}`}
              detail={sentence(node.status_reason)}
              action={
                <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
                  Look
                </Link>
              }
            />
          ))}
          <Rest
            count={away.length}
            what="nodes are offline or unhealthy"
            to={
              <Link to="/nodes" search={{ status: "unhealthy,offline" }}>
                Show them
              </Link>
            }
          />
        </ul>
      )}
    </Card>
  );
}
