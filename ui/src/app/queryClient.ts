import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError, isUnauthenticated } from "@/api/errors";
import { forgetSession } from "@/features/session/queries";

/** A session can end at any time, and any call may be the one that notices. */
function noticeSignOut(error: unknown): void {
  if (isUnauthenticated(error)) forgetSession(queryClient);
}

export const queryClient: QueryClient = new QueryClient({
  queryCache: new QueryCache({ onError: noticeSignOut }),
  mutationCache: new MutationCache({ onError: noticeSignOut }),
  defaultOptions: {
    queries: {
      // A frontend on this machine responds also when the browser reports to be offline.
      networkMode: "always",
      staleTime: 30_000,
      retry: (failures, error) => failures < 2 && error instanceof ApiError && error.isTransient,
    },
    // A change is never resent automatically: it may have succeeded although its answer was lost.
    mutations: { networkMode: "always", retry: false },
  },
});
