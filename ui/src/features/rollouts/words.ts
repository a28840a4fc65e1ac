import type { GateVerdict, Rollout, RolloutNode, RolloutState, RolloutWave } from "@/api/types";
import type { Tone } from "@/components/Pill";
import type { Steering } from "@/data/rollouts";
import { formatBytes } from "@/format/bytes";
import { plural } from "@/format/text";
import { formatDuration } from "@/format/time";
import type { ShownState } from "./search";

export const STATE_PILLS: Record<RolloutState, { word: string; tone: Tone }> = {
  running: { word: "Running", tone: "blue" },
  paused: { word: "Paused", tone: "yellow" },
  awaiting_promotion: { word: "Waiting for promotion", tone: "yellow" },
  rolling_back: { word: "Rolling back", tone: "red" },
  completed: { word: "Completed", tone: "green" },
  failed: { word: "Failed", tone: "red" },
  aborted: { word: "Aborted", tone: "grey" },
};

export function shownState({ state }: Pick<Rollout, "state">): ShownState {
  return state === "completed" || state === "failed" || state === "aborted" ? state : "open";
}

const VERBS: Record<string, string> = { install: "Install", upgrade: "Upgrade", rollback: "Roll back", pin: "Pin" };

export function titleOf({ verb, backend }: Pick<Rollout, "verb" | "backend">): string {
  return `${VERBS[verb] ?? verb} ${backend}`;
}

/** "1.0 → 2.0", once for builds that change alike. */
export function versionsOf({ versions }: Pick<Rollout, "versions">): string {
  return [...new Set(versions.map((one) => `${one.previous_version || "unknown"} → ${one.version || "unknown"}`))].join(
    ", ",
  );
}

const STRATEGIES: Record<Rollout["strategy"], string> = {
  all: "all nodes at once, without gates",
  waves: "in waves",
  canary: "canaries first, the rest after a promotion",
};

export const strategyWords = ({ strategy }: Pick<Rollout, "strategy">) => STRATEGIES[strategy];

export const PER_NODE_WORDS: Record<Rollout["per_node"], string> = {
  auto: "rolling where memory allows, otherwise stop-first",
  rolling: "rolling: the new version starts beside the old one",
  "stop-first": "stop-first: the old version stops before the new one starts",
};

export const WAVE_PILLS: Record<string, { word: string; tone: Tone }> = {
  waiting: { word: "Waiting", tone: "grey" },
  installing: { word: "Installing", tone: "blue" },
  soaking: { word: "Watching", tone: "blue" },
  passed: { word: "Passed", tone: "green" },
  failed: { word: "Failed", tone: "red" },
  stopped: { word: "Stopped", tone: "grey" },
};

export const NODE_PILLS: Record<string, { word: string; tone: Tone }> = {
  waiting: { word: "Waiting", tone: "grey" },
  running: { word: "In progress", tone: "blue" },
  retrying: { word: "Retrying", tone: "yellow" },
  done: { word: "New version", tone: "green" },
  rolling_back: { word: "Rolling back", tone: "yellow" },
  rolled_back: { word: "Rolled back", tone: "grey" },
  not_rolled_back: { word: "Not rolled back", tone: "red" },
  failed: { word: "Failed", tone: "red" },
  not_reached: { word: "Not reached", tone: "grey" },
  left: { word: "Replaced", tone: "grey" },
};

export function methodWords({ method, used_method }: Pick<RolloutNode, "method" | "used_method">): string {
  if (used_method !== "") return used_method;
  return method === "" ? "no replicas" : `${method} (planned)`;
}

/** "2 of 5 nodes have the new version". */
export function progressWords(rollout: Pick<Rollout, "waves">): string {
  const nodes = rollout.waves.flatMap((wave) => wave.nodes);
  const done = nodes.filter(({ state }) => state === "done").length;
  return `${done} of ${plural(nodes.length, "node")} ${done === 1 ? "has" : "have"} the new version`;
}

export function waveTitle({ strategy, wave_count }: Pick<Rollout, "strategy" | "wave_count">, number: number): string {
  if (strategy === "all" || wave_count === 1) return "All nodes";
  return `Wave ${number} of ${wave_count}`;
}

/** What a wave that is being watched waits for. */
export function waveNote(wave: RolloutWave, now: number): string {
  if (wave.state !== "soaking" || wave.soak_ends_at === null) return "";
  const left = (Date.parse(wave.soak_ends_at) - now) / 1000;
  return left > 0 ? `gates are judged for another ${formatDuration(left)}` : "the last gates are being judged";
}

export const GATE_NAMES: Record<string, string> = {
  starts: "Starts",
  stable: "Keeps running",
  errors: "Failed requests",
  first_token: "Time to first token",
  throughput: "Tokens per second",
  memory: "Memory",
  golden_prompts: "Golden prompts",
};

export const OUTCOME_PILLS: Record<GateVerdict["outcome"], { word: string; tone: Tone }> = {
  passed: { word: "Passed", tone: "green" },
  failed: { word: "Failed", tone: "red" },
  unjudged: { word: "Not judged", tone: "grey" },
};

/** What stopped a rollout is what people look for. */
export function failedFirst(gates: readonly GateVerdict[]): GateVerdict[] {
  return [...gates].sort((a, b) => Number(b.outcome === "failed") - Number(a.outcome === "failed"));
}

/** A figure of a gate in its own unit; an en dash where it is not known. */
export function figure({ gate }: Pick<GateVerdict, "gate">, value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  switch (gate) {
    case "errors":
      return `${(value * 100).toFixed(1)} %`;
    case "first_token":
      return `${Math.round(value)} ms`;
    case "throughput":
      return `${value.toFixed(1)} /s`;
    case "memory":
      return formatBytes(value);
    case "stable":
      return plural(value, "exit");
    default:
      return String(value);
  }
}

export interface Action {
  action: Steering;
  word: string;
}

/** What a person can do with a rollout now. */
export function actionsOf(rollout: Pick<Rollout, "state" | "strategy" | "held_back">): Action[] {
  if (rollout.held_back) return [{ action: "allow", word: "Allow this version again" }];
  if (rollout.strategy === "all") return [];
  const promote: Action = { action: "promote", word: "Promote" };
  const abort: Action = { action: "abort", word: "Abort…" };
  switch (rollout.state) {
    case "running":
      return [{ action: "pause", word: "Pause" }, promote, abort];
    case "awaiting_promotion":
      return [promote, { action: "pause", word: "Pause" }, abort];
    case "paused":
      return [{ action: "resume", word: "Resume" }, promote, abort];
    default:
      return [];
  }
}
