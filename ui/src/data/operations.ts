import { queryOptions, useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { ListEvent, Operation, OperationNode } from "@/api/types";
import { createBatchListener, createReadAgain } from "./lists";
import type { Held } from "./nodes";

export interface SeenOperation extends Operation {
  received_at_ms: number;
}

/** The list drops an operation when it ends. This page keeps showing it for a while, so that its end is visible. */
const KEEP_ENDED_MS = 10 * 60_000;

const isOver = (operation: Operation) => operation.finished_at !== null;

export function mergeOperations(
  known: readonly SeenOperation[],
  listed: readonly Operation[],
  atMs: number,
): SeenOperation[] {
  const listedIds = new Set(listed.map(({ jobID }) => jobID));
  const kept = known.filter(
    (each) =>
      isOver(each) &&
      each.state !== "failed" &&
      !listedIds.has(each.jobID) &&
      atMs - each.received_at_ms < KEEP_ENDED_MS,
  );
  return [...listed.map((each) => ({ ...each, received_at_ms: atMs })), ...kept];
}

export function applyOperations(
  known: readonly SeenOperation[],
  events: readonly ListEvent<Operation>[],
  atMs: number,
): SeenOperation[] {
  const byId = new Map(known.map((each) => [each.jobID, each]));
  for (const event of events) {
    for (const operation of event.changed) {
      const before = byId.get(operation.jobID);
      if (operation.dismissed_at !== null) byId.delete(operation.jobID);
      // An operation that ended before this page knew it belongs to the history.
      else if (before !== undefined || !isOver(operation) || operation.state === "failed") {
        const receivedAt = before !== undefined && isOver(before) && isOver(operation) ? before.received_at_ms : atMs;
        byId.set(operation.jobID, { ...operation, received_at_ms: receivedAt });
      }
    }
    for (const id of event.removed) byId.delete(id);
  }
  return [...byId.values()];
}

/** Operations that were running when last seen and are no longer listed. They have ended; the list does not say how. */
export function endedUnseen(known: readonly Operation[], listed: readonly Operation[]): string[] {
  const listedIds = new Set(listed.map(({ jobID }) => jobID));
  return known.filter((each) => !isOver(each) && !listedIds.has(each.jobID)).map(({ jobID }) => jobID);
}

async function readOperations(known: readonly SeenOperation[], signal: AbortSignal): Promise<SeenOperation[]> {
  const listed = await api.listOperations(signal);
  const ended = await Promise.all(endedUnseen(known, listed).map((id) => api.readOperation(id, signal).catch(isGone)));
  const seen = ended.filter((each): each is Operation => each?.dismissed_at === null);
  return mergeOperations(known, [...listed, ...seen], Date.now());
}

/** Shows a started operation, also when it ends before any list contains it. */
export async function watchStarted(client: QueryClient, id: string): Promise<void> {
  const operation = await api.readOperation(id);
  client.setQueryData<SeenOperation[]>(["operations"], (known) => [
    ...(known ?? []).filter(({ jobID }) => jobID !== id),
    { ...operation, received_at_ms: Date.now() },
  ]);
}

/** The operation was cleared from the history. */
function isGone(error: unknown): undefined {
  if (error instanceof ApiError && error.status === 404) return undefined;
  throw error;
}

export const operationQueries = {
  list: () =>
    queryOptions({
      queryKey: ["operations"],
      queryFn: ({ signal, client }) =>
        readOperations(client.getQueryData<SeenOperation[]>(["operations"]) ?? [], signal),
      refetchInterval: 60_000,
    }),
  one: (id: string) =>
    queryOptions({
      queryKey: ["operation", id],
      queryFn: ({ signal }) => api.readOperation(id, signal),
    }),
  history: () =>
    queryOptions({
      queryKey: ["history"],
      queryFn: ({ signal }) => api.listHistory(signal),
    }),
  exhausted: () =>
    queryOptions({
      queryKey: ["exhausted"],
      queryFn: async ({ signal }) => (await api.listExhausted(signal)).filter(({ newest }) => newest),
      refetchInterval: 60_000,
    }),
};

export function createOperationsListener(client: QueryClient): (data: string) => void {
  const readAgain = createReadAgain(client, operationQueries.history().queryKey, operationQueries.exhausted().queryKey);
  return createBatchListener<ListEvent<Operation>, SeenOperation[]>(
    client,
    operationQueries.list().queryKey,
    (known, events) => {
      for (const operation of events.flatMap(({ changed }) => changed)) {
        const { queryKey } = operationQueries.one(operation.jobID);
        // Only where a page shows it: the details of a large fleet are large.
        if (client.getQueryData(queryKey) !== undefined) client.setQueryData(queryKey, operation);
        if (isOver(operation) || operation.nodes.some(({ status }) => status === "error")) readAgain();
      }
      return applyOperations(known, events, Date.now());
    },
  );
}

const takesPart = (node: OperationNode) => node.status !== "not_applicable";

export interface Tally {
  done: number;
  failed: number;
  total: number;
}

export function tally(operation: Operation): Tally {
  const nodes = operation.nodes.filter(takesPart);
  return {
    done: nodes.filter(({ status }) => status === "success").length,
    failed: nodes.filter(({ status }) => status === "error").length,
    total: nodes.length,
  };
}

/** Reloads all operation queries after a change, also after a failed one, whose outcome may be unknown. */
function useOperationChange<T>(mutationFn: (change: T) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSettled: () =>
      Promise.all(
        ["operations", "operation", "history", "exhausted"].map((key) => client.invalidateQueries({ queryKey: [key] })),
      ),
  });
}

export const useRetry = () =>
  useOperationChange(({ id, nodeId }: { id: string; nodeId?: string }) => api.retryOperation(id, nodeId));
export const useCancel = () => useOperationChange((id: string) => api.cancelOperation(id));
export const useDismiss = () => useOperationChange((id: string) => api.dismissOperation(id));
export const useClearHistory = () => useOperationChange(() => api.clearHistory());

/** The nodes that an operation is waiting for; empty while other nodes can still make progress. */
export function awaited(operation: Pick<Operation, "state" | "nodes">, held: ReadonlyMap<string, Held>): string[] {
  if (operation.state !== "running") return [];
  const open = operation.nodes.filter(
    ({ status, next_attempt_at }) =>
      status === "queued" || status === "downloading" || status === "running_on_worker" || next_attempt_at !== null,
  );
  return open.every(({ node_id, status }) => held.has(node_id) && status !== "downloading")
    ? open.map(({ node_name }) => node_name)
    : [];
}

const MOST_NAMED = 2;

export function named(names: readonly string[]): string {
  const rest = names.length - MOST_NAMED;
  return rest > 0 ? `${names.slice(0, MOST_NAMED).join(", ")} and ${rest} more` : names.join(" and ");
}
