import { queryOptions, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api } from "@/api/client";
import type { Overview, OverviewSample } from "@/api/types";
import { Empty, Loading, Problem } from "@/components/Answers";
import { Chart } from "@/components/Chart";
import { Icon } from "@/components/Icon";
import { Meter } from "@/components/Meter";
import { Card, Page } from "@/components/Page";
import { StatusMark } from "@/components/StatusPill";
import { modelQueries } from "@/data/models";
import { figuresAsOf, nodeQueries, type SeenNode } from "@/data/nodes";
import { latest, type Point } from "@/format/points";
import { formatFigure, formatSeconds } from "@/format/rates";
import { plural } from "@/format/text";
import { Attention } from "./Attention";
import { failureWords, inMinutes, memoryShown } from "./figures";
import styles from "./OverviewPage.module.css";

const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: ({ signal }) => api.readOverview(signal),
  refetchInterval: 10_000,
});

export function OverviewPage() {
  const nodes = useQuery(nodeQueries.list());
  const overview = useQuery(overviewQuery);
  return (
    <Page title="Overview">
      {nodes.data === undefined ? (
        nodes.isPending ? (
          <Loading what="the fleet" />
        ) : (
          <Problem
            title="Could not load the fleet"
            error={nodes.error}
            retrying={nodes.isFetching}
            onRetry={() => void nodes.refetch()}
          />
        )
      ) : nodes.data.length === 0 ? (
        <Empty icon="nodes" title="No nodes yet" hint="Run the join command on a machine, then approve the node here.">
          <Link to="/nodes" search={{ add: "open" }}>
            Add a node
          </Link>
        </Empty>
      ) : (
        <>
          <FleetStatus nodes={nodes.data} />
          <Attention nodes={nodes.data} />
          {overview.data === undefined ? (
            overview.isPending ? (
              <Loading what="the last hour" />
            ) : (
              <Problem
                title="Could not load the last hour"
                error={overview.error}
                retrying={overview.isFetching}
                onRetry={() => void overview.refetch()}
              />
            )
          ) : (
            <Charts overview={overview.data} readAtMs={overview.dataUpdatedAt} />
          )}
          <Memory nodes={nodes.data} />
        </>
      )}
    </Page>
  );
}

function FleetStatus({ nodes }: { nodes: readonly SeenNode[] }) {
  const models = useQuery(modelQueries.list()).data;
  const replicas = useQuery(modelQueries.replicas()).data;
  const count = (test: (node: SeenNode) => boolean) => nodes.filter(test).length;
  const offline = count(({ state }) => state === "offline");
  const unhealthy = count(({ state }) => state === "unhealthy");
  const pending = count(({ approved }) => !approved);
  const draining = count(({ state }) => state === "draining");
  const ready = replicas?.filter(({ corral_state }) => corral_state === "ready");
  return (
    <p className={styles.fleet} aria-label="Fleet status">
      <span className={styles.part}>
        <StatusMark status="healthy" /> <strong>{count(({ state }) => state === "healthy")}</strong> healthy
      </span>
      <span className={styles.part}>
        <StatusMark status="offline" /> <strong>{offline}</strong> offline
      </span>
      {unhealthy > 0 ? (
        <span className={styles.part}>
          <StatusMark status="unhealthy" /> <strong>{unhealthy}</strong> unhealthy
        </span>
      ) : null}
      <span className={styles.part}>
        <StatusMark status="pending" /> <strong>{pending}</strong> pending
      </span>
      {draining > 0 ? (
        <span className={styles.part}>
          <StatusMark status="draining" /> <strong>{draining}</strong> draining
        </span>
      ) : null}
      {models === undefined || ready === undefined ? null : (
        <span className={styles.part}>
          <Icon name="models" size={14} /> <strong>{new Set(ready.map(({ model_name }) => model_name)).size}</strong> of{" "}
          {plural(models.length, "model")} ready, {plural(ready.length, "replica")}
        </span>
      )}
    </p>
  );
}

function Charts({ overview, readAtMs }: { overview: Overview; readAtMs: number }) {
  const requests = useMemo(() => perSecond(overview, ({ requests: count }) => count), [overview]);
  const failed = useMemo(() => perSecond(overview, ({ failed: count }) => count), [overview]);
  const tokens = useMemo(() => perSecond(overview, ({ tokens_out: count }) => count), [overview]);
  const first = useMemo(() => inMinutes(overview, (samples) => weighted(samples)), [overview]);
  return (
    <div className={styles.charts}>
      <ChartCard
        title="Requests/s"
        points={requests}
        more={failed}
        format={formatFigure}
        note={failureWords(overview, readAtMs)}
      />
      <ChartCard title="Tokens/s" points={tokens} format={formatFigure} note="generated by models" />
      <ChartCard
        title="Time to first token"
        points={first}
        format={formatSeconds}
        note="median; for responses without streaming, the time to the complete response"
      />
    </div>
  );
}

function perSecond(overview: Overview, value: (sample: OverviewSample) => number): Point[] {
  return inMinutes(
    overview,
    (samples) => samples.reduce((sum, each) => sum + value(each), 0) / (samples.length * overview.sample_s),
  );
}

function weighted(samples: readonly OverviewSample[]): number | null {
  const known = samples.filter((each) => each.first_byte_p50_s !== null && each.requests > 0);
  const total = known.reduce((sum, { requests }) => sum + requests, 0);
  return total === 0
    ? null
    : known.reduce((sum, each) => sum + (each.first_byte_p50_s ?? 0) * each.requests, 0) / total;
}

interface ChartCardProps {
  title: string;
  points: readonly Point[];
  more?: readonly Point[];
  format: (value: number) => string;
  note: string;
}

function ChartCard({ title, points, more, format, note }: ChartCardProps) {
  const now = latest(points);
  return (
    <Card>
      <div className={styles.chartCard}>
        <h2>{title}</h2>
        <p className={styles.figure}>{now === null ? "–" : format(now)}</p>
        <Chart title={title} points={points} {...(more === undefined ? {} : { more })} format={format} />
        <p className={styles.note}>{note}</p>
      </div>
    </Card>
  );
}

const MOST_MEMORY = 24;

/** A limited number of nodes; the Nodes page has the rest. */
function Memory({ nodes }: { nodes: readonly SeenNode[] }) {
  const shown = useMemo(() => memoryShown(nodes, MOST_MEMORY), [nodes]);
  const known = nodes.filter(({ approved }) => approved).length;
  if (known === 0) return null;
  return (
    <Card title="Memory by node">
      <ul className={styles.memory}>
        {shown.map((node) => (
          <li key={node.id}>
            <Link to="/nodes/$nodeId" params={{ nodeId: node.id }} className={styles.node}>
              {node.name}
            </Link>
            {node.total_vram ? (
              <Meter
                label="GPU"
                totalBytes={node.total_vram}
                freeBytes={node.available_vram}
                asOf={figuresAsOf(node)}
              />
            ) : null}
            <Meter
              label="RAM"
              warnFrom={0.92}
              totalBytes={node.total_ram}
              freeBytes={node.available_ram}
              asOf={figuresAsOf(node)}
            />
          </li>
        ))}
      </ul>
      {known > MOST_MEMORY ? (
        <p className={styles.rest}>
          <Link to="/nodes" search={{ sort: "memory" }}>
            {known - MOST_MEMORY} more, by memory
          </Link>
        </p>
      ) : null}
    </Card>
  );
}
