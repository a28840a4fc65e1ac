import { queryOptions, useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { isUnauthenticated } from "@/api/errors";
import type { Session } from "@/api/types";

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  /** Null is an answer too: nobody is signed in. */
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      return await api.readSession(signal);
    } catch (error) {
      if (isUnauthenticated(error)) return null;
      throw error;
    }
  },
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
