import type { Overview, OverviewSample } from "@/api/types";
import type { SeenNode } from "@/data/nodes";
import { groupBy } from "@/format/groups";
import { MINUTES, type Point } from "@/format/points";
import { plural } from "@/format/text";
import { formatClock } from "@/format/time";

/** Samples grouped by whole minutes, oldest first; minutes before the first sample are unknown. */
export function inMinutes(overview: Overview, fold: (samples: readonly OverviewSample[]) => number | null): Point[] {
  const byMinute = groupBy(overview.samples, ({ ended_age_s }) => Math.floor(ended_age_s / 60));
  return Array.from({ length: MINUTES }, (_, index) => {
    const ago = MINUTES - 1 - index;
    const samples = byMinute.get(ago);
    return { ago, value: samples === undefined ? null : fold(samples) };
  });
}

const HOUR_S = 3600;

/** Failures in the time that was counted: a restarted frontend has no earlier data. */
export function failureWords({ samples, sample_s }: Overview, nowMs: number): string {
  const oldest = samples[0];
  if (oldest === undefined) return "no data yet";
  const failed = samples.reduce((sum, each) => sum + each.failed, 0);
  const countedS = oldest.ended_age_s + sample_s;
  // The sample in progress is left out.
  const when =
    countedS >= HOUR_S - 2 * sample_s
      ? "in the last hour"
      : `since ${formatClock(nowMs - countedS * 1000).slice(0, 5)}`;
  return `${failed === 0 ? "none" : plural(failed, "request")} failed ${when}`;
}

/** The fullest nodes when there are many, always sorted by name. */
export function memoryShown(nodes: readonly SeenNode[], most: number): SeenNode[] {
  const fullest = nodes.filter(({ approved }) => approved).sort((a, b) => usedShare(b) - usedShare(a) || byName(a, b));
  return fullest.slice(0, most).sort(byName);
}

const byName = (a: SeenNode, b: SeenNode) => a.name.localeCompare(b.name, undefined, { numeric: true });

function usedShare(node: SeenNode): number {
  const [total, free] = node.total_vram ? [node.total_vram, node.available_vram] : [node.total_ram, node.available_ram];
  return total === null || free === null || total === 0 ? -1 : 1 - free / total;
}
