import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Started, Target } from "@/api/types";
import { watchStarted } from "@/data/operations";

export const galleryQueries = {
  available: (everything: boolean) =>
    queryOptions({
      queryKey: ["available", everything],
      queryFn: ({ signal }) => api.listAvailable(everything, signal),
      refetchInterval: 60_000,
    }),
  /** The models that a delete would stop. */
  dependents: (element: string, target: Target) =>
    queryOptions({
      queryKey: ["dependents", element, target],
      queryFn: () => api.readDependents(element, target),
      staleTime: 0,
    }),
  /** The waves of an upgrade, and how each node would change. */
  preview: (element: string, target: Target) =>
    queryOptions({
      queryKey: ["upgrade-preview", element, target],
      queryFn: () => api.previewUpgrade(element, target),
      staleTime: 0,
      retry: false,
    }),
  policies: () =>
    queryOptions({
      queryKey: ["policies"],
      queryFn: ({ signal }) => api.listPolicies(signal),
      refetchInterval: 60_000,
    }),
};

const CHANGED_BY_OPERATIONS = [["operations"], ["fleet-backends"], ["policies"], ["upgrades"], ["available"]];

/** Sends a change. When the answer names a started operation, the page shows that operation. */
export function useBackendMutation<T>(mutationFn: (change: T) => Promise<unknown>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSuccess: (answer) =>
      isStarted(answer) ? watchStarted(client, answer.jobID).catch(ignoreReadFailure) : undefined,
    onSettled: () => Promise.all(CHANGED_BY_OPERATIONS.map((queryKey) => client.invalidateQueries({ queryKey }))),
  });
}

const isStarted = (answer: unknown): answer is Started =>
  typeof answer === "object" && answer !== null && "jobID" in answer;

function ignoreReadFailure(): void {
  // The operation was started. The list of operations shows it even when reading it at once failed.
}
