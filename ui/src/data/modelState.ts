import type { Load, Replica, ReplicaState } from "@/api/types";
import type { Tone } from "@/components/Pill";

export const REPLICA_WORDS: Record<ReplicaState, { word: string; tone: Tone }> = {
  starting: { word: "Starting", tone: "blue" },
  loading: { word: "Loading", tone: "blue" },
  ready: { word: "Ready", tone: "green" },
  draining: { word: "Draining", tone: "violet" },
  stopping: { word: "Stopping", tone: "grey" },
  failed: { word: "Failed", tone: "red" },
  offline: { word: "Offline", tone: "grey" },
};

/** Unknown: replicas or loads are not loaded yet, or could not be. */
export type ModelWord = "Ready" | "Loading" | "Failed" | "Waiting" | "Not reachable" | "Not loaded" | "Unknown";

export interface ModelState {
  word: ModelWord;
  /** The word, with how many are ready. */
  label: string;
  tone: Tone;
  ready: number;
}

export type ReplicaStateInfo = Pick<Replica, "corral_state" | "reason">;
export type LoadStateInfo = Pick<Load, "state" | "reason" | "error">;

const TONES: Record<ModelWord, Tone> = {
  Ready: "green",
  Loading: "blue",
  Failed: "red",
  Waiting: "yellow",
  "Not reachable": "red",
  "Not loaded": "grey",
  Unknown: "grey",
};

/** A model's state in one word. A ready replica counts first, then a load, then a failure. */
export function modelState(
  replicas: readonly ReplicaStateInfo[] | undefined,
  loads: readonly LoadStateInfo[] | undefined,
): ModelState {
  const ready = replicas?.filter(({ corral_state }) => corral_state === "ready").length ?? 0;
  const word = ready > 0 ? "Ready" : wordWithoutReady(replicas, loads);
  return { word, label: ready > 1 ? `${word} ×${ready}` : word, tone: TONES[word], ready };
}

function wordWithoutReady(
  replicas: readonly ReplicaStateInfo[] | undefined,
  loads: readonly LoadStateInfo[] | undefined,
): ModelWord {
  if (replicas === undefined || loads === undefined) return "Unknown";
  const isLoading = replicas.some(({ corral_state }) => corral_state === "starting" || corral_state === "loading");
  if (isLoading || loads.some((load) => !hasFailed(load) && !waits(load))) return "Loading";
  if (loads.some(hasFailed) || replicas.some(({ corral_state }) => corral_state === "failed")) return "Failed";
  if (loads.some(waits)) return "Waiting";
  return replicas.some(({ corral_state }) => corral_state === "offline") ? "Not reachable" : "Not loaded";
}

const hasFailed = ({ state, error }: LoadStateInfo) => state === "failed" || (error ?? "") !== "";
const waits = ({ state, reason }: LoadStateInfo) => state === "pending" && (reason ?? "") !== "";

/** The causes of a failure, each once. */
export function failureCauses(replicas: readonly ReplicaStateInfo[], loads: readonly Pick<Load, "error">[]): string[] {
  const failed = replicas.filter(({ corral_state }) => corral_state === "failed");
  const causes = [...loads.map(({ error }) => error ?? ""), ...failed.map(({ reason }) => reason ?? "")];
  return [...new Set(causes.filter((cause) => cause !== ""))];
}
