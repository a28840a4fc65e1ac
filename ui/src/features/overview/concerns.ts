import type {
  BackendOnNode,
  FleetBackend,
  Intent,
  Model,
  ModelSummary,
  Node,
  Operation,
  OperationNode,
  Replica,
  Rollout,
  Scheduling,
  SlowBuild,
} from "@/api/types";
import { failureCauses } from "@/data/modelState";
import type { Held } from "@/data/nodes";
import { awaited, named } from "@/data/operations";
import { closed, stopped } from "@/format/text";
import { formatDateTime } from "@/format/time";

/** Failed, blocked, or in progress. */
export type Tone = "bad" | "warn" | "wait";

/** Operations with a failure, also one that is retried automatically; without those whose failed nodes are all listed
 * one by one, because their retries are exhausted. */
export function failingOperations<T extends Pick<Operation, "jobID" | "state" | "error" | "nodes">>(
  operations: readonly T[],
  exhausted: readonly Intent[],
): T[] {
  return operations.filter((operation) => {
    if (operation.state !== "failed" && operation.error === "") return false;
    return operation.nodes.every(({ status }) => status !== "error") || failedNodes(operation, exhausted).length > 0;
  });
}

/** Failed nodes, without those that are listed one by one. */
function failedNodes<T extends Pick<OperationNode, "node_id" | "status">>(
  { jobID, nodes }: { jobID: string; nodes: readonly T[] },
  exhausted: readonly Intent[],
): T[] {
  const listed = new Set(exhausted.filter(({ operation_id }) => operation_id === jobID).map(({ node_id }) => node_id));
  return nodes.filter(({ node_id, status }) => status === "error" && !listed.has(node_id));
}

/** `held`: nodes that get no commands now. */
export function failureWord(
  operation: Pick<Operation, "finished_at" | "retrying" | "state" | "nodes">,
  held: ReadonlyMap<string, Held>,
): string {
  if (operation.finished_at !== null) return "failed";
  const waitsFor = awaited(operation, held);
  if (waitsFor.length > 0) return `failed; waiting for ${named(waitsFor)}`;
  return operation.retrying ? "failed; retrying" : "partially failed";
}

/** Nodes whose name or identity another machine claims. Only a person can tell which of the two is the node. */
export function identityConcerns(
  nodes: readonly Pick<Node, "id" | "name" | "claims" | "conflict">[],
): { id: string; text: string; detail: string }[] {
  return nodes.flatMap(({ id, name, claims, conflict }) => {
    const text = `Another machine claims to be ${name}`;
    const [first] = claims;
    if (first !== undefined) {
      const more = claims.length > 1 ? ` ${claims.length - 1} more claim the same name.` : "";
      return [
        {
          id,
          text,
          detail: `It registered from ${first.address} at ${formatDateTime(first.made_at)}. Replace ${name} with it, or reject it.${more}`,
        },
      ];
    }
    return conflict === null ? [] : [{ id, text, detail: closed(conflict.message) }];
  });
}

const MOST_NODES = 3;

/** The errors of the first few failed nodes. */
export function failureDetail(
  operation: Pick<Operation, "jobID" | "error" | "nodes">,
  exhausted: readonly Intent[] = [],
): string {
  const failed = failedNodes(operation, exhausted).map((node) => stopped(`${node.node_name}: ${node.error}`));
  if (failed.length === 0) return closed(operation.error);
  const rest = failed.length - MOST_NODES;
  return [...failed.slice(0, MOST_NODES), ...(rest > 0 ? [`And ${rest} more.`] : [])].join(" ");
}

/** Where a backend has drifted; without places where it is missing or extra because retries are exhausted, which are
 * listed with the error. */
export function driftingPlaces(
  backends: readonly FleetBackend[],
  exhausted: readonly Pick<Intent, "backend" | "node_id">[],
): { backend: string; place: BackendOnNode }[] {
  const listed = new Set(exhausted.map(({ backend, node_id }) => `${backend} ${node_id}`));
  return backends.flatMap(({ name, nodes }) =>
    nodes
      .filter(({ node_id, drift }) =>
        drift.some(({ cause }) => (cause !== "missing" && cause !== "extra") || !listed.has(`${name} ${node_id}`)),
      )
      .map((place) => ({ backend: name, place })),
  );
}

/** Without backends that are pinned or held back everywhere: an administrator or a gate decided against the newer
 * version, or a rollout is bringing it. */
export function upgradableBackends(
  upgrades: Readonly<
    Record<string, { node_drift: readonly { pinned: string; held_back: string; rolling_out: string }[] }>
  >,
): string[] {
  return Object.entries(upgrades).flatMap(([name, { node_drift }]) =>
    node_drift.some(({ pinned, held_back, rolling_out }) => pinned + held_back + rolling_out === "") ? [name] : [],
  );
}

/** Rollouts that wait for a person or for too long, and versions that failed and were not allowed since. */
export function rolloutConcerns(
  rollouts: readonly Pick<
    Rollout,
    "id" | "backend" | "versions" | "state" | "reason" | "summary" | "held_back" | "is_overdue"
  >[],
): { id: string; tone: Tone; text: string; detail: string }[] {
  return rollouts.flatMap(({ id, backend, versions, state, reason, summary, held_back, is_overdue }) => {
    const what = `${backend} ${[...new Set(versions.map(({ version }) => version))].join(", ")}`.trimEnd();
    const found = (tone: Tone, text: string, detail: string) => [{ id, tone, text, detail: closed(detail) }];
    switch (state) {
      case "rolling_back":
        return found("bad", `The rollout of ${what} is being rolled back`, reason);
      case "failed":
        return held_back ? found("bad", `The rollout of ${what} failed; the version is held back`, reason) : [];
      case "running":
        return is_overdue ? found("warn", `The rollout of ${what} makes no progress`, summary) : [];
      case "paused":
        return found("warn", `The rollout of ${what} is paused`, summary);
      case "awaiting_promotion":
        return found("warn", `The rollout of ${what} waits for a promotion`, summary);
      default:
        return [];
    }
  });
}

/** CPU builds on nodes with an accelerator, with what corrects it. */
export function slowBuildConcerns(
  builds: readonly SlowBuild[],
): { key: string; node: string; text: string; detail: string }[] {
  return builds.map(({ node_id, node_name, backend, reason, remedy }) => ({
    key: `slow ${backend} ${node_id}`,
    node: node_name,
    text: `${backend} does not use the accelerator of ${node_name}`,
    detail: `${stopped(reason)} To correct it: ${remedy}`,
  }));
}

export interface ModelConcern {
  model: string;
  tone: Tone;
  text: string;
  detail: string;
}

/** Models below their desired replicas, the worst first. */
export function modelConcerns(
  summaries: Readonly<Record<string, ModelSummary>>,
  replicas: readonly Replica[],
  scheduling: readonly Scheduling[],
): ModelConcern[] {
  const unsatisfiable = new Map(scheduling.map((each) => [each.model_name, each.unsatisfiable_reason ?? ""]));
  const found = Object.entries(summaries).map(([model, summary]) => {
    const own = replicas.filter(({ model_name }) => model_name === model);
    const causes = failureCauses(own, summary.loads);
    return unreachable(model, own) ?? concernOf(model, summary, causes, unsatisfiable.get(model) ?? "");
  });
  return found
    .filter((each) => each !== null)
    .sort((a, b) => TONES.indexOf(a.tone) - TONES.indexOf(b.tone) || a.model.localeCompare(b.model));
}

const TONES: readonly Tone[] = ["bad", "warn", "wait"];

/** Nobody but its attached endpoints can serve such a model. */
function unreachable(model: string, replicas: readonly Replica[]): ModelConcern | null {
  const isAway = ({ backend_type, corral_state }: Replica) => backend_type === "attached" && corral_state === "offline";
  if (replicas.length === 0 || !replicas.every(isAway)) return null;
  const detail = onceEach(
    closed,
    replicas.map(({ node, address, reason }) => `${node ?? address}: ${reason ?? "no answer"}`),
  );
  return { model, tone: "bad", text: `${model} is not reachable`, detail };
}

function concernOf(
  model: string,
  summary: ModelSummary,
  causes: readonly string[],
  unsatisfiable: string,
): ModelConcern | null {
  const { ready, replicas, loads } = summary;
  const hasFailed = replicas.some(({ state }) => state === "failed");
  const errors = onceEach(stopped, causes);
  // The reason of a load in progress says what it does, not what blocks it.
  const reasons = onceEach(closed, [
    unsatisfiable,
    ...loads.filter(({ state }) => state === "pending").map(({ reason }) => reason),
  ]);
  if (hasFailed || errors !== "")
    return { model, tone: "bad", text: ready > 0 ? `${model} failed on a node` : `${model} failed`, detail: errors };
  if (reasons !== "")
    return { model, tone: "warn", text: `${model}: desired replicas cannot be placed`, detail: reasons };
  const desired = summary.desired?.min_replicas ?? 0;
  if (ready >= desired) return null;
  const share = `${ready} of ${desired} replicas ready`;
  const offline = onceEach(
    closed,
    replicas.filter(({ state }) => state === "offline").map(({ node }) => `its replica on ${node} is offline`),
  );
  if (offline !== "") return { model, tone: "warn", text: `${model} has ${share}`, detail: offline };
  const isLoading = loads.length > 0 || replicas.some(({ state }) => state === "starting" || state === "loading");
  return {
    model,
    tone: "wait",
    text: isLoading ? `${model} is loading: ${share}` : `${model} has ${share}`,
    detail: "",
  };
}

/** Edits that could not be loaded; the previous revision still serves. */
export function pendingEdits(models: readonly Pick<Model, "name" | "pending">[]): ModelConcern[] {
  return models.flatMap(({ name, pending }) =>
    pending === null || pending.failures === 0
      ? []
      : [
          {
            model: name,
            tone: "warn",
            text: `Edit of ${name} could not be loaded; the previous revision still serves`,
            detail: closed(pending.reason),
          },
        ],
  );
}

function onceEach(ended: (text: string) => string, texts: readonly (string | null | undefined)[]): string {
  return [...new Set(texts)]
    .map((text) => ended(text ?? ""))
    .filter(Boolean)
    .join(" ");
}
