import { queryOptions, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { ListEvent, Model, Replica } from "@/api/types";
import { applyList, createBatchListener, createReadAgain } from "./lists";

export const modelQueries = {
  list: () =>
    queryOptions({
      queryKey: ["models"],
      queryFn: ({ signal }) => api.listModels(signal),
      refetchInterval: 60_000,
    }),
  replicas: () =>
    queryOptions({
      queryKey: ["replicas"],
      queryFn: ({ signal }) => api.listReplicas(signal),
      refetchInterval: 60_000,
    }),
  summary: () =>
    queryOptions({
      queryKey: ["replicas-summary"],
      queryFn: ({ signal }) => api.summariseReplicas(signal),
      // Waiting and failed loads are not in the event stream.
      refetchInterval: 5_000,
    }),
  routes: () =>
    queryOptions({
      queryKey: ["routes"],
      queryFn: ({ signal }) => api.listRoutes(signal),
      refetchInterval: 10_000,
    }),
  scheduling: () =>
    queryOptions({
      queryKey: ["scheduling"],
      queryFn: ({ signal }) => api.listScheduling(signal),
      refetchInterval: 15_000,
    }),
};

export function createModelsListener(client: QueryClient): (data: string) => void {
  const fold = createBatchListener<ListEvent<Model>, Model[]>(client, modelQueries.list().queryKey, (known, events) =>
    applyList(known, events, ({ name }) => name).sort((a, b) => a.name.localeCompare(b.name)),
  );
  // Also for an open editor: it shows a change by another user before saving is rejected.
  const readAgain = createReadAgain(client, ["model"], ["revisions"], ["models-available"]);
  return (data) => {
    fold(data);
    readAgain();
  };
}

export function createReplicasListener(client: QueryClient): (data: string) => void {
  const fold = createBatchListener<ListEvent<Replica>, Replica[]>(
    client,
    modelQueries.replicas().queryKey,
    (known, events) => applyList(known, events, ({ id }) => id),
  );
  const readAgain = createReadAgain(
    client,
    ["why-model"],
    ["why-node"],
    modelQueries.scheduling().queryKey,
    modelQueries.summary().queryKey,
  );
  return (data) => {
    fold(data);
    readAgain();
  };
}
