import { queryOptions, useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => api.readSession(signal),
  staleTime: Infinity,
  // There is no live line without a session, so nothing else would notice that the frontend is back.
  refetchInterval: (query) => (query.state.status === "error" ? 3000 : false),
});

/** The sign-in page takes over, and the address stays. What one person saw is not there when the next one signs in. */
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
