import { queryOptions, useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => api.readSession(signal),
  staleTime: Infinity,
  // There is no event stream without a session, so nothing else would notice that the frontend is back.
  refetchInterval: (query) => (query.state.status === "error" ? 3000 : false),
});

/** Shows the sign-in page at the same address, and drops the data that the previous user saw. */
export function forgetSession(client: QueryClient): void {
  client.setQueryData(sessionQuery.queryKey, null);
  client.removeQueries({ predicate: isNotSession });
}

export const isNotSession = (query: { queryKey: readonly unknown[] }) => query.queryKey[0] !== sessionQuery.queryKey[0];

export function useSignIn() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: api.signIn,
    onSuccess: (session) => client.setQueryData(sessionQuery.queryKey, session),
  });
}

export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: api.signOut,
    onSuccess: () => forgetSession(client),
  });
}
