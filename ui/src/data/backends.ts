import { queryOptions, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { FleetBackend, ListEvent } from "@/api/types";
import { applyList, createBatchListener, createReadAgain } from "./lists";

export const backendQueries = {
  fleet: () =>
    queryOptions({
      queryKey: ["fleet-backends"],
      queryFn: ({ signal }) => api.listFleetBackends(signal),
      refetchInterval: 60_000,
    }),
  slow: () =>
    queryOptions({
      queryKey: ["slow-builds"],
      queryFn: ({ signal }) => api.listSlowBuilds(signal),
      refetchInterval: 60_000,
    }),
  upgrades: () =>
    queryOptions({
      queryKey: ["upgrades"],
      queryFn: ({ signal }) => api.listUpgrades(signal),
      refetchInterval: 60_000,
    }),
};

export function createBackendsListener(client: QueryClient): (data: string) => void {
  const fold = createBatchListener<ListEvent<FleetBackend>, FleetBackend[]>(
    client,
    backendQueries.fleet().queryKey,
    (known, events) => applyList(known, events, ({ name }) => name).sort((a, b) => a.name.localeCompare(b.name)),
  );
  const readAgain = createReadAgain(
    client,
    backendQueries.upgrades().queryKey,
    backendQueries.slow().queryKey,
    ["node-backends"],
    ["available"],
    ["policies"],
  );
  return (data) => {
    fold(data);
    readAgain();
  };
}
