import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { Rollout } from "@/api/types";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Button } from "@/components/Button";
import { Filters } from "@/components/Filters";
import { Card, Page } from "@/components/Page";
import { Pill } from "@/components/Pill";
import { SearchField } from "@/components/SearchField";
import { Tabs } from "@/components/Tabs";
import { rolloutQueries } from "@/data/rollouts";
import { closed, plural } from "@/format/text";
import { formatDateTime } from "@/format/time";
import { ModelRollouts } from "./ModelRollouts";
import styles from "./RolloutsPage.module.css";
import {
  readStates,
  SHOWN_STATES,
  withStateToggled,
  type RolloutsSearch,
  type RolloutsTab,
  type ShownState,
} from "./search";
import { SteerButtons } from "./SteerButtons";
import { WaveBar } from "./WaveBar";
import { progressWords, shownState, STATE_PILLS, strategyWords, titleOf, versionsOf } from "./words";

const route = getRouteApi("/rollouts");

const STATE_WORDS: Record<ShownState, string> = {
  open: "Open",
  completed: "Completed",
  failed: "Failed",
  aborted: "Aborted",
};

export function RolloutsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const rollouts = useQuery(rolloutQueries.list());
  const show = (change: RolloutsSearch, replace = false) =>
    void navigate({ search: (now) => ({ ...now, ...change }), replace });
  const tab = search.tab ?? "backends";
  const states = readStates(search.state);
  const all = rollouts.data?.rollouts;
  const revisions = rollouts.data?.revisions;
  return (
    <Page
      title="Rollouts"
      toolbar={
        <>
          <Tabs<RolloutsTab>
            label="Rollout views"
            value={tab}
            onChange={(next) => show({ tab: next, state: "", q: "" })}
            tabs={[
              { value: "backends", word: "Backends", count: all?.length },
              { value: "models", word: "Models", count: revisions?.length },
            ]}
          />
          <SearchField
            label="Filter rollouts"
            placeholder={tab === "backends" ? "Backend, version, node, user…" : "Model, user…"}
            text={search.q ?? ""}
            onText={(q) => show({ q }, true)}
          />
          {tab === "backends" && all !== undefined && all.length > 0 ? (
            <Filters<ShownState>
              label="Show by state"
              options={SHOWN_STATES.map((state) => ({
                value: state,
                word: STATE_WORDS[state],
                count: all.filter((each) => shownState(each) === state).length,
              }))}
              chosen={states}
              total={all.length}
              onToggle={(state) => show(withStateToggled(search, state))}
              onAll={() => show({ state: "" })}
            />
          ) : null}
        </>
      }
    >
      {all === undefined || revisions === undefined ? (
        rollouts.isPending ? (
          <Loading what="rollouts" />
        ) : (
          <Problem
            title="Could not load rollouts"
            error={rollouts.error}
            retrying={rollouts.isFetching}
            onRetry={() => void rollouts.refetch()}
          />
        )
      ) : tab === "models" ? (
        <ModelRollouts revisions={revisions} text={search.q ?? ""} onAll={() => show({ q: "" })} />
      ) : (
        <BackendRollouts
          rollouts={all}
          text={search.q ?? ""}
          states={states}
          onAll={() => show({ q: "", state: "" })}
        />
      )}
    </Page>
  );
}

interface BackendRolloutsProps {
  rollouts: readonly Rollout[];
  text: string;
  states: readonly ShownState[];
  onAll: () => void;
}

const textOf = (each: Rollout) =>
  [
    titleOf(each),
    versionsOf(each),
    each.strategy,
    each.actor,
    each.summary,
    ...each.waves.flatMap(({ nodes }) => nodes.map(({ node_name }) => node_name)),
  ]
    .join(" ")
    .toLowerCase();

function BackendRollouts({ rollouts, text, states, onAll }: BackendRolloutsProps) {
  if (rollouts.length === 0) {
    return (
      <Empty
        icon="rollouts"
        title="No rollouts yet"
        hint="Upgrade a backend or pin another version to start one. More than three nodes change in waves, with gates after each."
      >
        <Link to="/backends">Open backends</Link>
      </Empty>
    );
  }
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rollouts.filter(
    (each) =>
      (states.length === 0 || states.includes(shownState(each))) && words.every((word) => textOf(each).includes(word)),
  );
  if (found.length === 0) {
    return (
      <Empty
        icon="search"
        title="No matches"
        hint={`None of ${plural(rollouts.length, "rollout")} matches the filter.`}
      >
        <Button onClick={onAll}>Show all</Button>
      </Empty>
    );
  }
  return (
    <ul className={styles.list} aria-label="Rollouts">
      {found.map((rollout) => (
        <li key={rollout.id}>
          <RolloutCard rollout={rollout} />
        </li>
      ))}
    </ul>
  );
}

function RolloutCard({ rollout }: { rollout: Rollout }) {
  const pill = STATE_PILLS[rollout.state];
  return (
    <Card
      title={
        <span className={styles.title}>
          <Link to="/rollouts/$rolloutId" params={{ rolloutId: rollout.id }}>
            {titleOf(rollout)}
          </Link>
          <span className={styles.versions}>{versionsOf(rollout)}</span>
          <Pill tone={pill.tone}>{pill.word}</Pill>
          {rollout.held_back ? <Pill tone="yellow">Held back</Pill> : null}
        </span>
      }
      actions={<SteerButtons rollout={rollout} />}
    >
      <div className={styles.body}>
        <WaveBar waves={rollout.waves} />
        <p className={styles.summary}>{closed(rollout.summary)}</p>
        <p className={styles.meta}>
          {progressWords(rollout)} · {strategyWords(rollout)} · {formatDateTime(rollout.created_at)} by {rollout.actor}
        </p>
      </div>
    </Card>
  );
}
