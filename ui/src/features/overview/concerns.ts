import type {
  FleetBackend,
  FleetPlace,
  Intent,
  Model,
  ModelSummary,
  Node,
  Operation,
  OperationNode,
  Replica,
  Scheduling,
} from "@/api/types";
import { failureCauses } from "@/data/modelState";
import type { Held } from "@/data/nodes";
import { awaited, named } from "@/data/operations";
import { closed, stopped } from "@/format/text";
import { formatDateTime } from "@/format/time";

/** Failed for good, held up, or on its way. */
export type Tone = "bad" | "warn" | "wait";

/** Operations with a failure, also one that is tried again by itself; not those that are told node by node, because
 * they were given up. */
export function failingOperations<T extends Pick<Operation, "jobID" | "state" | "error" | "nodes">>(
  operations: readonly T[],
  givenUp: readonly Intent[],
): T[] {
  return operations.filter((operation) => {
    if (operation.state !== "failed" && operation.error === "") return false;
    return operation.nodes.every(({ status }) => status !== "error") || failedNodes(operation, givenUp).length > 0;
  });
}

/** Without those that are told one by one. */
function failedNodes<T extends Pick<OperationNode, "node_id" | "status">>(
  { jobID, nodes }: { jobID: string; nodes: readonly T[] },
  givenUp: readonly Intent[],
): T[] {
  const told = new Set(givenUp.filter(({ operation_id }) => operation_id === jobID).map(({ node_id }) => node_id));
  return nodes.filter(({ node_id, status }) => status === "error" && !told.has(node_id));
}

/** `held`: nodes that get no orders now. */
export function failureWord(
  operation: Pick<Operation, "finished_at" | "retrying" | "state" | "nodes">,
  held: ReadonlyMap<string, Held>,
): string {
  if (operation.finished_at !== null) return "failed";
  const waitsFor = awaited(operation, held);
  if (waitsFor.length > 0) return `failed and waits for ${named(waitsFor)}`;
  return operation.retrying ? "failed and is retried" : "partially failed";
}

/** Nodes whose name or identity another machine claims: nobody but a person can tell which of the two it is. */
export function identityConcerns(
  nodes: readonly Pick<Node, "id" | "name" | "claims" | "conflict">[],
): { id: string; text: string; detail: string }[] {
  return nodes.flatMap(({ id, name, claims, conflict }) => {
    const text = `Another machine claims to be ${name}`;
    const [first] = claims;
    if (first !== undefined) {
      const more = claims.length > 1 ? ` ${claims.length - 1} more claim it too.` : "";
      return [
        {
          id,
          text,
          detail: `It registered from ${first.address} at ${formatDateTime(first.made_at)} and waits until you replace ${name} or reject it.${more}`,
        },
      ];
    }
    return conflict === null ? [] : [{ id, text, detail: closed(conflict.message) }];
  });
}

const MOST_NODES = 3;

/** Node by node, as far as a glance goes. */
export function failureDetail(
  operation: Pick<Operation, "jobID" | "error" | "nodes">,
  givenUp: readonly Intent[] = [],
): string {
  const failed = failedNodes(operation, givenUp).map((node) => stopped(`${node.node_name}: ${node.error}`));
  if (failed.length === 0) return closed(operation.error);
  const rest = failed.length - MOST_NODES;
  return [...failed.slice(0, MOST_NODES), ...(rest > 0 ? [`And ${rest} more.`] : [])].join(" ");
}

/** Where a backend differs from what is wanted; not where it is missing or too much because an order was given up, which
 * is told with the reason. */
export function driftingPlaces(
  backends: readonly FleetBackend[],
  givenUp: readonly Pick<Intent, "backend" | "node_id">[],
): { backend: string; place: FleetPlace }[] {
  const told = new Set(givenUp.map(({ backend, node_id }) => `${backend} ${node_id}`));
  return backends.flatMap(({ name, nodes }) =>
    nodes
      .filter(({ node_id, drift }) =>
        drift.some(({ cause }) => (cause !== "missing" && cause !== "extra") || !told.has(`${name} ${node_id}`)),
      )
      .map((place) => ({ backend: name, place })),
  );
}

/** Not those that were rolled back everywhere: somebody decided against what is newer. */
export function upgradableBackends(
  upgrades: Readonly<Record<string, { node_drift: readonly { rolled_back: boolean }[] }>>,
): string[] {
  return Object.entries(upgrades).flatMap(([name, { node_drift }]) =>
    node_drift.some(({ rolled_back }) => !rolled_back) ? [name] : [],
  );
}

export interface ModelConcern {
  model: string;
  tone: Tone;
  text: string;
  detail: string;
}

/** Models that are not as they are wanted, the worst first. */
export function modelConcerns(
  summaries: Readonly<Record<string, ModelSummary>>,
  replicas: readonly Replica[],
  scheduling: readonly Scheduling[],
): ModelConcern[] {
  const unsatisfiable = new Map(scheduling.map((each) => [each.model_name, each.unsatisfiable_reason ?? ""]));
  const found = Object.entries(summaries).map(([model, summary]) => {
    const causes = failureCauses(
      replicas.filter(({ model_name }) => model_name === model),
      summary.loads,
    );
    return concernOf(model, summary, causes, unsatisfiable.get(model) ?? "");
  });
  return found
    .filter((each) => each !== null)
    .sort((a, b) => TONES.indexOf(a.tone) - TONES.indexOf(b.tone) || a.model.localeCompare(b.model));
}

const TONES: readonly Tone[] = ["bad", "warn", "wait"];

function concernOf(
  model: string,
  summary: ModelSummary,
  causes: readonly string[],
  unsatisfiable: string,
): ModelConcern | null {
  const { ready, replicas, loads } = summary;
  const hasFailed = replicas.some(({ state }) => state === "failed");
  const errors = onceEach(stopped, causes);
  // One that is under way tells with its reason what it does, not what stands in its way.
  const reasons = onceEach(closed, [
    unsatisfiable,
    ...loads.filter(({ state }) => state === "pending").map(({ reason }) => reason),
  ]);
  if (hasFailed || errors !== "")
    return { model, tone: "bad", text: ready > 0 ? `${model} failed on a machine` : `${model} failed`, detail: errors };
  if (reasons !== "") return { model, tone: "warn", text: `${model} cannot be as wanted`, detail: reasons };
  const wanted = summary.wanted?.min_replicas ?? 0;
  if (ready >= wanted) return null;
  const share = `${ready} of ${wanted} replicas ready`;
  const away = onceEach(
    closed,
    replicas.filter(({ state }) => state === "away").map(({ node }) => `its replica on ${node} is away`),
  );
  if (away !== "") return { model, tone: "warn", text: `${model} has ${share}`, detail: away };
  const isLoading = loads.length > 0 || replicas.some(({ state }) => state === "starting" || state === "loading");
  return {
    model,
    tone: "wait",
    text: isLoading ? `${model} is being loaded: ${share}` : `${model} has ${share}`,
    detail: "",
  };
}

/** Edits that could not be loaded; what served before serves on. */
export function pendingEdits(
  models: readonly Pick<Model, "name" | "pending">[],
): { model: string; text: string; detail: string }[] {
  return models.flatMap(({ name, pending }) =>
    pending === null || pending.failures === 0
      ? []
      : [
          {
            model: name,
            text: `The edit of ${name} could not be loaded; the revision before serves on`,
            detail: closed(pending.reason),
          },
        ],
  );
}

function onceEach(ended: (text: string) => string, texts: readonly (string | undefined)[]): string {
  return [...new Set(texts)]
    .map((text) => ended(text ?? ""))
    .filter(Boolean)
    .join(" ");
}
