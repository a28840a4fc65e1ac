import { queryOptions, useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { NodeMinute } from "@/api/types";
import { Chart } from "@/components/Chart";
import { QueryResult, PanelSection } from "@/components/PanelParts";
import type { SeenNode } from "@/data/nodes";
import { formatBytes } from "@/format/bytes";
import { lastHour, latest } from "@/format/points";
import { formatFigure } from "@/format/rates";
import styles from "./NodeHistory.module.css";

const historyQuery = (id: string) =>
  queryOptions({
    queryKey: ["node-history", id],
    queryFn: ({ signal }) => api.readNodeHistory(id, signal),
    refetchInterval: 15_000,
  });

interface Series {
  title: string;
  value: (minute: NodeMinute) => number | null;
  bad?: (minute: NodeMinute) => number;
  format: (value: number) => string;
  limit?: (node: SeenNode) => number | null;
}

/** A minute that has just begun has too little data for a rate. */
const LEAST_S = 5;
const each = (minute: NodeMinute, count: number) => (minute.length_s < LEAST_S ? null : count / minute.length_s);

const REQUESTS: Series = {
  title: "Requests/s",
  value: (minute) => each(minute, minute.requests),
  bad: (minute) => each(minute, minute.failed) ?? 0,
  format: formatFigure,
};
const WORK: Series = {
  title: "Requests in flight",
  value: (minute) => each(minute, minute.busy_s),
  format: formatFigure,
};
const RAM: Series = {
  title: "RAM in use",
  value: ({ ram_used }) => ram_used,
  format: formatBytes,
  limit: ({ total_ram }) => total_ram,
};
const GPU: Series = {
  title: "GPU memory in use",
  value: ({ vram_used }) => vram_used,
  format: formatBytes,
  limit: ({ total_vram }) => total_vram,
};

export function NodeHistory({ node }: { node: SeenNode }) {
  const history = useQuery(historyQuery(node.id));
  return (
    <PanelSection title="Last hour">
      <QueryResult query={history}>
        {({ minutes }) => (
          <div className={styles.charts}>
            {(node.total_vram ? [RAM, GPU, REQUESTS, WORK] : [RAM, REQUESTS, WORK]).map((series) => (
              <SmallChart key={series.title} series={series} node={node} minutes={minutes} />
            ))}
          </div>
        )}
      </QueryResult>
    </PanelSection>
  );
}

function SmallChart({ series, node, minutes }: { series: Series; node: SeenNode; minutes: readonly NodeMinute[] }) {
  const { title, value, bad, format, limit } = series;
  const points = lastHour(minutes.map(value));
  const now = latest(points);
  return (
    <div>
      <p className={styles.head}>
        <span className={styles.soft}>{title}</span> <strong>{now === null ? "–" : format(now)}</strong>
      </p>
      <Chart
        title={title}
        points={points}
        {...(bad === undefined ? {} : { more: lastHour(minutes.map(bad)) })}
        format={format}
        limit={limit?.(node)}
      />
    </div>
  );
}
