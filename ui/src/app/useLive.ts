import { useEffect } from "react";
import { createBackendsListener } from "@/data/backends";
import { createModelsListener, createReplicasListener } from "@/data/models";
import { createNodesListener } from "@/data/nodes";
import { createOperationsListener } from "@/data/operations";
import { forgetSession, isNotSession } from "@/features/session/queries";
import { liveLine } from "@/live/connection";
import { queryClient } from "./queryClient";

/** Keeps what the page shows in step with the frontend's event stream while someone is signed in. */
export function useLive(): void {
  useEffect(() => {
    const listeners: Record<string, (data: string) => void> = {
      nodes: createNodesListener(queryClient),
      operations: createOperationsListener(queryClient),
      backends: createBackendsListener(queryClient),
      models: createModelsListener(queryClient),
      replicas: createReplicasListener(queryClient),
    };
    return liveLine.start({
      onConnected: () => void queryClient.invalidateQueries({ predicate: isNotSession }),
      onEvents: (events) => {
        for (const event of events) listeners[event.name]?.(event.data);
      },
      onSignedOut: () => forgetSession(queryClient),
    });
  }, []);
}
