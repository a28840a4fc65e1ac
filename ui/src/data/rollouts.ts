import { queryOptions, useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { ListEvent, Rollout, Rollouts } from "@/api/types";
import { applyList, createReadAgain } from "./lists";

const newestFirst = (a: Rollout, b: Rollout) => (b.created_at ?? "").localeCompare(a.created_at ?? "");

/** The list after some events; a rollout that ended stays in it. */
export function applyRollouts(known: Rollouts, event: ListEvent<Rollout>): Rollouts {
  return { ...known, rollouts: applyList(known.rollouts, [event], ({ id }) => id).sort(newestFirst) };
}

export const rolloutQueries = {
  list: () =>
    queryOptions({
      queryKey: ["rollouts"],
      queryFn: ({ signal }) => api.listRollouts(signal),
      refetchInterval: 60_000,
    }),
  one: (id: string) =>
    queryOptions({
      queryKey: ["rollout", id],
      queryFn: ({ signal }) => api.readRollout(id, signal),
      refetchInterval: 60_000,
    }),
};

/** Events of rollouts carry everything but their history, which only the details show: those are read again. */
export function createRolloutsListener(client: QueryClient): (data: string) => void {
  const readAgain = createReadAgain(client, ["rollout"], ["upgrades"]);
  return (data) => {
    const event = JSON.parse(data) as ListEvent<Rollout>;
    client.setQueryData<Rollouts>(rolloutQueries.list().queryKey, (known) =>
      known === undefined ? undefined : applyRollouts(known, event),
    );
    readAgain();
  };
}

export type Steering = "pause" | "resume" | "promote" | "abort" | "allow";

export interface Steer {
  id: string;
  action: Steering;
  /** Why it is paused. */
  reason?: string;
}

export function useSteer() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ id, action, reason }: Steer) => api.steerRollout(id, action, reason),
    onSuccess: (rollout) => client.setQueryData(rolloutQueries.one(rollout.id).queryKey, rollout),
    onSettled: () =>
      Promise.all(
        ["rollouts", "rollout", "operations", "upgrades"].map((key) => client.invalidateQueries({ queryKey: [key] })),
      ),
  });
}
