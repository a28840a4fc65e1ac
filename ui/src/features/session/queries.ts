import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
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
    onSuccess: () => {
      client.clear();
      client.setQueryData(sessionQuery.queryKey, null);
    },
  });
}
