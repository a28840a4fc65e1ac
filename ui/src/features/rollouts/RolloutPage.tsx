import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { GateVerdict, Rollout, RolloutEvent, RolloutNode, RolloutWave } from "@/api/types";
import { Loading, Problem } from "@/components/Answers";
import { Icon } from "@/components/Icon";
import { Card, Page } from "@/components/Page";
import { Fact, Facts } from "@/components/PanelParts";
import { Pill } from "@/components/Pill";
import { useNow } from "@/components/useNow";
import { rolloutQueries } from "@/data/rollouts";
import { closed, plural } from "@/format/text";
import { formatDateTime, formatDuration } from "@/format/time";
import styles from "./RolloutPage.module.css";
import { SteerButtons } from "./SteerButtons";
import { WaveBar } from "./WaveBar";
import {
  failedFirst,
  figure,
  GATE_NAMES,
  methodWords,
  NODE_PILLS,
  OUTCOME_PILLS,
  PER_NODE_WORDS,
  progressWords,
  STATE_PILLS,
  strategyWords,
  titleOf,
  versionsOf,
  WAVE_PILLS,
  waveNote,
  waveTitle,
} from "./words";

const route = getRouteApi("/rollouts/$rolloutId");

export function RolloutPage() {
  const { rolloutId } = route.useParams();
  const rollout = useQuery(rolloutQueries.one(rolloutId));
  if (rollout.data === undefined) {
    if (rollout.isPending) return <Loading what="the rollout" />;
    return (
      <Problem
        title="Could not load the rollout"
        error={rollout.error}
        retrying={rollout.isFetching}
        onRetry={() => void rollout.refetch()}
      />
    );
  }
  return <Details rollout={rollout.data} />;
}

function Details({ rollout }: { rollout: Rollout }) {
  return (
    <Page
      title={`${titleOf(rollout)} ${versionsOf(rollout)}`}
      actions={<SteerButtons rollout={rollout} />}
      toolbar={
        <Link to="/rollouts" className={styles.back}>
          <Icon name="back" size={14} /> All rollouts
        </Link>
      }
    >
      <Summary rollout={rollout} />
      {rollout.waves.map((wave) => (
        <Wave key={wave.number} rollout={rollout} wave={wave} />
      ))}
      <Timeline events={rollout.events} />
    </Page>
  );
}

function Summary({ rollout }: { rollout: Rollout }) {
  const pill = STATE_PILLS[rollout.state];
  return (
    <Card>
      <div className={styles.summary}>
        <p className={styles.state}>
          <Pill tone={pill.tone}>{pill.word}</Pill>
          <span>{closed(rollout.summary)}</span>
        </p>
        <WaveBar waves={rollout.waves} />
        <p className={styles.soft}>{progressWords(rollout)}</p>
        {rollout.held_back_note === "" ? null : (
          <p className={styles.held}>
            <Icon name="warning" /> {rollout.held_back_note}
          </p>
        )}
        {rollout.allowed_by === "" ? null : (
          <p className={styles.soft}>{rollout.allowed_by} allowed this version again after it had failed.</p>
        )}
        <Facts>
          <Fact name="Strategy">{strategyWords(rollout)}</Fact>
          <Fact name="On a node">{PER_NODE_WORDS[rollout.per_node]}</Fact>
          {rollout.strategy === "all" ? null : (
            <Fact name="Watched">
              {formatDuration(rollout.soak_s)} after each wave; a gate that cannot be judged counts as{" "}
              {rollout.unjudged_passes ? "passed" : "failed"}
            </Fact>
          )}
          <Fact name="Started">
            {formatDateTime(rollout.created_at)} by {rollout.actor}
          </Fact>
          {rollout.ended_at === null ? null : <Fact name="Ended">{formatDateTime(rollout.ended_at)}</Fact>}
          <Fact name="Operation">
            <code>{rollout.id}</code>
          </Fact>
        </Facts>
      </div>
    </Card>
  );
}

function Wave({ rollout, wave }: { rollout: Rollout; wave: RolloutWave }) {
  const now = useNow();
  const pill = WAVE_PILLS[wave.state] ?? { word: wave.state, tone: "grey" as const };
  const note = waveNote(wave, now);
  const title = waveTitle(rollout, wave.number);
  return (
    <Card
      title={
        <span className={styles.title}>
          {title} <Pill tone={pill.tone}>{pill.word}</Pill>
          <span className={styles.meta}>
            {plural(wave.nodes.length, "node")}
            {note === "" ? "" : `; ${note}`}
          </span>
        </span>
      }
    >
      <Nodes title={title} nodes={wave.nodes} />
      {wave.gates.length > 0 ? <Gates title={title} gates={wave.gates} /> : null}
      {rollout.strategy !== "all" && wave.began_at !== null && wave.gates.length === 0 ? (
        <p className={styles.none}>Gates are judged when the wave is installed.</p>
      ) : null}
    </Card>
  );
}

function Nodes({ title, nodes }: { title: string; nodes: readonly RolloutNode[] }) {
  return (
    <table className={styles.table} aria-label={`Nodes of ${title}`}>
      <thead>
        <tr>
          <th scope="col">Node</th>
          <th scope="col">State</th>
          <th scope="col">From</th>
          <th scope="col">Method</th>
          <th scope="col">Class</th>
        </tr>
      </thead>
      <tbody>
        {nodes.map((node) => {
          const pill = NODE_PILLS[node.state] ?? { word: node.state, tone: "grey" as const };
          return (
            <tr key={node.node_id}>
              <th scope="row">
                <Link to="/nodes/$nodeId" params={{ nodeId: node.node_id }}>
                  {node.node_name}
                </Link>
              </th>
              <td>
                <Pill tone={pill.tone}>{pill.word}</Pill>
                {node.error === "" ? null : <span className={styles.error}>{closed(node.error)}</span>}
              </td>
              <td data-label="From">{node.previous_version || "unknown"}</td>
              <td data-label="Method">{methodWords(node)}</td>
              <td data-label="Class" className={styles.softCell}>
                {node.node_class}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function Gates({ title, gates }: { title: string; gates: readonly GateVerdict[] }) {
  return (
    <table className={styles.table} aria-label={`Gates of ${title}`}>
      <thead>
        <tr>
          <th scope="col">Gate</th>
          <th scope="col">Result</th>
          <th scope="col" className={styles.number}>
            Before
          </th>
          <th scope="col" className={styles.number}>
            New
          </th>
          <th scope="col">Model and class</th>
        </tr>
      </thead>
      <tbody>
        {failedFirst(gates).map((gate) => {
          const pill = OUTCOME_PILLS[gate.outcome];
          return (
            <tr key={`${gate.gate} ${gate.model} ${gate.node_class}`}>
              <th scope="row">{GATE_NAMES[gate.gate] ?? gate.gate}</th>
              <td>
                <Pill tone={pill.tone}>{pill.word}</Pill>
                <span className={gate.outcome === "failed" ? styles.error : styles.detail}>{closed(gate.detail)}</span>
              </td>
              <td data-label="Before" className={styles.number}>
                {figure(gate, gate.old)}
              </td>
              <td data-label="New" className={styles.number}>
                {figure(gate, gate.new)}
              </td>
              <td data-label="For" className={styles.softCell}>
                {[gate.model, gate.node_class].filter(Boolean).join(", ")}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function Timeline({ events }: { events: readonly RolloutEvent[] }) {
  return (
    <Card title="Timeline">
      <ol className={styles.timeline} aria-label="Timeline">
        {events.map((event, at) => (
          <li key={at} className={styles.event} data-kind={event.kind}>
            <span className={styles.when}>{formatDateTime(event.at)}</span>
            <span className={styles.what}>
              <strong>{closed(event.kind.replaceAll("_", " "))}</strong> {closed(event.text)}
              {event.actor === "rollout" ? null : <span className={styles.meta}> by {event.actor}</span>}
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
