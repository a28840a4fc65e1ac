import { useEffect } from "react";
import { sessionQuery } from "@/features/session/queries";
import { createNodesListener } from "@/features/nodes/live";
import { liveLine } from "@/live/connection";
import { queryClient } from "./queryClient";

/** Keeps what the page shows in step with the frontend's event stream while someone is signed in. */
export function useLive(): void {
  useEffect(() => {
    const listeners: Record<string, (data: string) => void> = { nodes: createNodesListener(queryClient) };
    return liveLine.start({
      onConnected: () => void queryClient.invalidateQueries({ predicate: (query) => query.queryKey[0] !== sessionQuery.queryKey[0] }),
      onEvents: (events) => {
        for (const event of events) listeners[event.name]?.(event.data);
      },
      onSignedOut: () => queryClient.setQueryData(sessionQuery.queryKey, null),
    });
  }, []);
}
