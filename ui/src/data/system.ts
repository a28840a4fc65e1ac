import { queryOptions } from "@tanstack/react-query";
import { api } from "@/api/client";

export const systemQueries = {
  status: () =>
    queryOptions({
      queryKey: ["status"],
      queryFn: ({ signal }) => api.readStatus(signal),
      refetchInterval: 15_000,
    }),
};
