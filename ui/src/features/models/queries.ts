import { keepPreviousData, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";

export const modelDetailQueries = {
  one: (name: string) =>
    queryOptions({
      queryKey: ["model", name],
      queryFn: ({ signal }) => api.readModel(name, signal),
    }),
  revisions: (name: string) =>
    queryOptions({
      queryKey: ["revisions", name],
      queryFn: ({ signal }) => api.listRevisions(name, signal),
    }),
  changes: (name: string, number: number) =>
    queryOptions({
      queryKey: ["revision-changes", name, number],
      queryFn: ({ signal }) => api.readChanges(name, number, signal),
    }),
  endpoints: (name: string) =>
    queryOptions({
      queryKey: ["endpoints", name],
      queryFn: ({ signal }) => api.listEndpoints(name, signal),
      refetchInterval: 5_000,
    }),
  why: (name: string) =>
    queryOptions({
      queryKey: ["why-model", name],
      queryFn: ({ signal }) => api.whyModel(name, signal),
      // A load's progress is not in the event stream, so it is polled while a load is in progress.
      refetchInterval: (query) => ((query.state.data?.loads.length ?? 0) > 0 ? 1000 : 10_000),
    }),
  gallery: (term: string) =>
    queryOptions({
      queryKey: ["models-available", term],
      queryFn: ({ signal }) => api.listAvailableModels(term, signal),
      refetchInterval: 60_000,
      placeholderData: keepPreviousData,
    }),
};

const CHANGED = [
  "models",
  "model",
  "revisions",
  "why-model",
  "models-available",
  "replicas",
  "replicas-summary",
  "scheduling",
  "endpoints",
  "routes",
];

export function useModelChange<T, R = void>(mutationFn: (change: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSettled: () => Promise.all(CHANGED.map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}
