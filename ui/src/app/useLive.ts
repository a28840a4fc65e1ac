import { useEffect } from "react";
import { createNodesListener } from "@/features/nodes";
import { forgetSession, isNotSession } from "@/features/session/queries";
import { liveLine } from "@/live/connection";
import { queryClient } from "./queryClient";

/** Keeps what the page shows in step with the frontend's event stream while someone is signed in. */
export function useLive(): void {
  useEffect(() => {
    const listeners: Record<string, (data: string) => void> = { nodes: createNodesListener(queryClient) };
    return liveLine.start({
      onConnected: () => void queryClient.invalidateQueries({ predicate: isNotSession }),
      onEvents: (events) => {
        for (const event of events) listeners[event.name]?.(event.data);
      },
      onSignedOut: () => forgetSession(queryClient),
    });
  }, []);
}
