import type { Load, ReplicaState, Scheduling } from "@/api/types";
import type { Tone } from "@/components/Pill";
import { formatSelector } from "@/format/selector";
import { plural } from "@/format/text";

export const REPLICA_WORDS: Record<ReplicaState, { word: string; tone: Tone }> = {
  starting: { word: "Starting", tone: "blue" },
  loading: { word: "Loading", tone: "blue" },
  ready: { word: "Ready", tone: "green" },
  draining: { word: "Draining", tone: "violet" },
  stopping: { word: "Stopping", tone: "grey" },
  failed: { word: "Failed", tone: "red" },
  away: { word: "Away", tone: "grey" },
};

/** Of several files the one that is on its way. */
export function whichFile(load: Pick<Load, "state" | "file_index" | "total_files">): string {
  return load.state === "staging" && load.file_index > 0 && load.total_files > 1 ? `file ${load.file_index} of ${load.total_files}` : "";
}

export function readSelector(scheduling: Scheduling | undefined): Record<string, string> {
  if (scheduling?.node_selector === undefined) return {};
  return JSON.parse(scheduling.node_selector) as Record<string, string>;
}

/** With how many are ready of those that are wanted, while they are too few. */
export function schedulingWords(scheduling: Scheduling | undefined, ready = Infinity): string {
  if (scheduling === undefined) return "loaded when it is first asked for";
  const selector = readSelector(scheduling);
  const where = Object.keys(selector).length === 0 ? "" : ` on nodes with ${formatSelector(selector)}`;
  if (scheduling.spread_all === true) return `on every node${where === "" ? "" : where.replace(" on nodes", "")}`;
  const { min_replicas: least, max_replicas: most } = scheduling;
  if (least === 0 && most === 0) return `loaded when it is first asked for${where}`;
  if (ready < least) return `${shareWords(scheduling, ready)}${where}`;
  if (most === 0) return `at least ${least}${where}`;
  return `${least === most ? least : `${least} to ${most}`} ${most === 1 ? "replica" : "replicas"}${where}`;
}

function shareWords({ min_replicas: least, max_replicas: most }: Scheduling, ready: number): string {
  return `${ready} of ${least === most ? "" : "at least "}${plural(least, "replica")}`;
}

/** Of a model that serves: what the replicas that are to come wait for, or why they failed. */
export function restWords(scheduling: Scheduling | undefined, ready: number, { waits, failed }: { waits: string; failed: string }): string {
  if (ready === 0 || (waits === "" && failed === "")) return "";
  const missing = scheduling === undefined || scheduling.spread_all === true ? 0 : scheduling.min_replicas - ready;
  const share = scheduling !== undefined && missing > 0 ? shareWords(scheduling, ready) : plural(ready, "replica");
  const rest = missing > 1 ? "the others" : missing === 1 ? "the other" : "another";
  return `${share}; ${rest} ${failed !== "" ? "failed" : missing > 1 ? "wait" : "waits"}: ${failed || waits}`;
}
