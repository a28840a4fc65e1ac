import { infiniteQueryOptions, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";

export const accessQueries = {
  keys: () =>
    queryOptions({ queryKey: ["keys"], queryFn: ({ signal }) => api.listKeys(signal), refetchInterval: 30_000 }),
  usage: () =>
    queryOptions({
      queryKey: ["usage-by-key"],
      queryFn: ({ signal }) => api.listUsageByKey(signal),
      refetchInterval: 30_000,
    }),
  usageOf: (id: string) =>
    queryOptions({
      queryKey: ["key-usage", id],
      queryFn: ({ signal }) => api.readKeyUsage(id, signal),
      refetchInterval: 5_000,
    }),
  defaults: () => queryOptions({ queryKey: ["key-defaults"], queryFn: ({ signal }) => api.readKeyDefaults(signal) }),
  audit: () =>
    infiniteQueryOptions({
      queryKey: ["audit"],
      queryFn: ({ pageParam, signal }) => api.listAudit(pageParam, signal),
      initialPageParam: undefined as number | undefined,
      getNextPageParam: (last) => (last.length < 100 ? undefined : last.at(-1)?.id),
      refetchInterval: 30_000,
    }),
};

export function useAccessChange<T, R = void>(mutationFn: (change: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn,
    onSettled: () =>
      Promise.all(
        [["keys"], ["audit"], ["key-usage"], ["key-defaults"]].map((queryKey) =>
          client.invalidateQueries({ queryKey }),
        ),
      ),
  });
}
