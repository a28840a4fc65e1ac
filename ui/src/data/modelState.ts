import type { Load, Replica } from "@/api/types";
import type { Tone } from "@/components/Pill";

export type ModelWord = "Ready" | "Loading" | "Failed" | "Waiting" | "Not loaded";

export interface ModelState {
  word: ModelWord;
  /** The word, with how many are ready. */
  label: string;
  tone: Tone;
  ready: number;
}

export type StandingReplica = Pick<Replica, "corral_state" | "reason">;
export type StandingLoad = Pick<Load, "state" | "reason" | "error">;

const TONES: Record<ModelWord, Tone> = { Ready: "green", Loading: "blue", Failed: "red", Waiting: "yellow", "Not loaded": "grey" };

/** A model's state in one word: what serves, what comes, what stands in the way, or that nothing does. */
export function modelState(replicas: readonly StandingReplica[], loads: readonly StandingLoad[]): ModelState {
  const ready = replicas.filter(({ corral_state }) => corral_state === "ready").length;
  const word = ready > 0 ? "Ready" : wordWithoutReady(replicas, loads);
  return { word, label: ready > 1 ? `${word} ×${ready}` : word, tone: TONES[word], ready };
}

function wordWithoutReady(replicas: readonly StandingReplica[], loads: readonly StandingLoad[]): ModelWord {
  const comes = replicas.some(({ corral_state }) => corral_state === "starting" || corral_state === "loading");
  if (comes || loads.some((load) => !hasFailed(load) && !waits(load))) return "Loading";
  if (loads.some(hasFailed) || replicas.some(({ corral_state }) => corral_state === "failed")) return "Failed";
  return loads.some(waits) ? "Waiting" : "Not loaded";
}

const hasFailed = ({ state, error }: StandingLoad) => state === "failed" || (error ?? "") !== "";
const waits = ({ state, reason }: StandingLoad) => state === "pending" && (reason ?? "") !== "";

/** Why it failed, each cause once. */
export function failureCauses(replicas: readonly StandingReplica[], loads: readonly Pick<Load, "error">[]): string[] {
  const failed = replicas.filter(({ corral_state }) => corral_state === "failed");
  const told = [...loads.map(({ error }) => error ?? ""), ...failed.map(({ reason }) => reason ?? "")];
  return [...new Set(told.filter((cause) => cause !== ""))];
}
