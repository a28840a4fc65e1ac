import { useQuery } from "@tanstack/react-query";
import type { KeyUsage as Usage } from "@/api/types";
import { Loading, Problem } from "@/components/Answers";
import { cx } from "@/components/cx";
import { formatCount } from "@/format/rates";
import { LIMITS } from "./limits";
import styles from "./Limits.module.css";
import { accessQueries } from "./queries";

const DAYS = 30;
const WIDTH = 300;
const HEIGHT = 80;
const DAY_MS = 86_400_000;

/** What a key has used of its limits now, and its tokens day by day. */
export function KeyUsage({ id }: { id: string }) {
  const usage = useQuery(accessQueries.usageOf(id));
  if (usage.data === undefined) {
    if (usage.isPending) return <Loading what="usage" />;
    return (
      <Problem
        title="Could not load usage"
        error={usage.error}
        retrying={usage.isFetching}
        onRetry={() => void usage.refetch()}
      />
    );
  }
  const { limits, used } = usage.data;
  const limited = LIMITS.filter(({ name }) => limits[name] > 0);
  return (
    <div className={styles.form}>
      {limited.length === 0 ? (
        <p className={styles.hint}>This key has no limits.</p>
      ) : (
        <div className={styles.meters}>
          {limited.map(({ name, word }) => (
            <UsedMeter key={name} word={word} used={used[name]} limit={limits[name]} />
          ))}
        </div>
      )}
      <DayChart usage={usage.data} />
    </div>
  );
}

function UsedMeter({ word, used, limit }: { word: string; used: number; limit: number }) {
  const share = Math.min(1, used / limit);
  const text = `${formatCount(used)} of ${formatCount(limit)}`;
  return (
    <div
      className={styles.meter}
      role="meter"
      aria-label={word}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      aria-valuetext={`${text} used`}
    >
      <span>{word}</span>
      <span>{text}</span>
      <span className={styles.track}>
        <span className={cx(styles.fill, share >= 1 && styles.full)} style={{ width: `${share * 100}%` }} />
      </span>
    </div>
  );
}

function DayChart({ usage }: { usage: Usage }) {
  const last = Date.parse(usage.day_ends_at) - DAY_MS;
  const bars = usage.days.map(({ day, tokens }) => ({
    at: DAYS - 1 - Math.round((last - Date.parse(day)) / DAY_MS),
    tokens,
  }));
  const limit = usage.limits.tokens_per_day;
  const top = Math.max(1, limit, ...bars.map(({ tokens }) => tokens));
  const y = (tokens: number) => HEIGHT - (tokens / top) * (HEIGHT - 4);
  const width = WIDTH / DAYS;
  const total = bars.reduce((sum, { tokens }) => sum + tokens, 0);
  const words = `Tokens per day, last 30 days: ${formatCount(total)} in total${limit > 0 ? `, limit ${formatCount(limit)} a day` : ""}`;
  return (
    <figure className={styles.chart}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
        {bars.map(({ at, tokens }) => (
          <rect
            key={at}
            className={styles.bar}
            x={at * width + 1}
            width={width - 2}
            y={y(tokens)}
            height={HEIGHT - y(tokens)}
          />
        ))}
        {limit > 0 ? <line className={styles.limit} x1="0" x2={WIDTH} y1={y(limit)} y2={y(limit)} /> : null}
      </svg>
      <figcaption className={styles.axis} aria-hidden="true">
        <span>30 days ago</span>
        <span>{`${formatCount(total)} tokens`}</span>
        <span>today</span>
      </figcaption>
    </figure>
  );
}
