import type { Load, Replica, ReplicaState, Scheduling } from "@/api/types";
import type { Tone } from "@/components/Pill";
import { formatSelector } from "@/format/selector";

export const REPLICA_WORDS: Record<ReplicaState, { word: string; tone: Tone }> = {
  starting: { word: "Starting", tone: "blue" },
  loading: { word: "Loading", tone: "blue" },
  ready: { word: "Ready", tone: "green" },
  draining: { word: "Draining", tone: "violet" },
  stopping: { word: "Stopping", tone: "grey" },
  failed: { word: "Failed", tone: "red" },
  away: { word: "Away", tone: "grey" },
};

/** A model's state in one word: what serves, what comes, or that nothing does. */
export function modelState(replicas: readonly Replica[], isLoading: boolean): { word: string; tone: Tone } {
  const ready = replicas.filter(({ corral_state }) => corral_state === "ready").length;
  if (ready > 0) return { word: ready === 1 ? "Ready" : `Ready ×${ready}`, tone: "green" };
  if (isLoading || replicas.some(({ corral_state }) => corral_state === "starting" || corral_state === "loading")) return { word: "Loading", tone: "blue" };
  if (replicas.some(({ corral_state }) => corral_state === "failed")) return { word: "Failed", tone: "red" };
  return { word: "Not loaded", tone: "grey" };
}

/** Of several files the one that is on its way. */
export function whichFile(load: Pick<Load, "state" | "file_index" | "total_files">): string {
  return load.state === "staging" && load.file_index > 0 && load.total_files > 1 ? `file ${load.file_index} of ${load.total_files}` : "";
}

export function readSelector(scheduling: Scheduling | undefined): Record<string, string> {
  if (scheduling?.node_selector === undefined) return {};
  return JSON.parse(scheduling.node_selector) as Record<string, string>;
}

export function schedulingWords(scheduling: Scheduling | undefined): string {
  if (scheduling === undefined) return "loaded when it is first asked for";
  const selector = readSelector(scheduling);
  const where = Object.keys(selector).length === 0 ? "" : ` on nodes with ${formatSelector(selector)}`;
  if (scheduling.spread_all === true) return `on every node${where === "" ? "" : where.replace(" on nodes", "")}`;
  const { min_replicas: least, max_replicas: most } = scheduling;
  if (least === 0 && most === 0) return `loaded when it is first asked for${where}`;
  if (most === 0) return `at least ${least}${where}`;
  return `${least === most ? least : `${least} to ${most}`} ${most === 1 ? "replica" : "replicas"}${where}`;
}
