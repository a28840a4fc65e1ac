import { MINUTES, roundUp, type Point } from "@/format/points";
import styles from "./Chart.module.css";

interface ChartProps {
  title: string;
  points: readonly Point[];
  /** Drawn on top, in the colour of failures. */
  more?: readonly Point[];
  format: (value: number) => string;
  /** The top of the chart; by default a round number above the highest value. */
  limit?: number | null | undefined;
}

const WIDTH = 300;
const HEIGHT = 80;
const STEP = WIDTH / (MINUTES - 1);

/** The last hour as a line, with a text alternative. */
export function Chart({ title, points, more, format, limit }: ChartProps) {
  const values = points.map(({ value }) => value).filter((value) => value !== null);
  const most = Math.max(0, ...values);
  const top = limit ? Math.max(limit, most) : roundUp(most);
  const y = (value: number) => HEIGHT - 1 - (value / top) * (HEIGHT - 6);
  const words =
    values.length === 0
      ? `${title}: no data in the last hour`
      : `${title}, last hour: maximum ${format(most)}, minimum ${format(Math.min(...values))}`;
  return (
    <figure className={styles.chart}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={words}>
        <line x1="0" x2={WIDTH} y1={y(top)} y2={y(top)} className={styles.line} />
        <line x1="0" x2={WIDTH} y1={HEIGHT - 1} y2={HEIGHT - 1} className={styles.line} />
        {runsOf(points).map((run) => (
          <g key={run[0]?.ago}>
            <path
              d={`${pathOf(run, y)}L${endsOf(run)[1]},${HEIGHT - 1}L${endsOf(run)[0]},${HEIGHT - 1}Z`}
              className={styles.area}
            />
            <path d={pathOf(run, y)} className={styles.stroke} />
          </g>
        ))}
        {more === undefined || more.every(({ value }) => !value)
          ? null
          : runsOf(more).map((run) => <path key={run[0]?.ago} d={pathOf(run, y)} className={styles.bad} />)}
      </svg>
      <figcaption className={styles.axis} aria-hidden="true">
        <span>1 h ago</span>
        <span>{values.length === 0 ? "no data" : `max ${format(top)}`}</span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}

const xOf = (point: Point | undefined) => (point === undefined ? 0 : (MINUTES - 1 - point.ago) * STEP);

/** A single minute would be a path without length, so it is drawn one minute wide. */
function endsOf(run: readonly Point[]): [number, number] {
  const half = run.length === 1 ? STEP / 2 : 0;
  return [xOf(run[0]) - half, xOf(run.at(-1)) + half];
}

function pathOf(run: readonly (Point & { value: number })[], y: (value: number) => number): string {
  const [only] = run;
  const [from, to] = endsOf(run);
  if (run.length === 1 && only !== undefined) return `M${from},${y(only.value)}L${to},${y(only.value)}`;
  return run
    .map((point, index) => `${index === 0 ? "M" : "L"}${xOf(point).toFixed(1)},${y(point.value).toFixed(1)}`)
    .join("");
}

/** Splits the line where values are unknown. */
export function runsOf(points: readonly Point[]): (Point & { value: number })[][] {
  const runs: (Point & { value: number })[][] = [];
  let open = false;
  for (const { ago, value } of points) {
    if (value === null) open = false;
    else {
      if (!open) runs.push([]);
      open = true;
      runs.at(-1)?.push({ ago, value });
    }
  }
  return runs;
}
