import type { Query } from "@tanstack/react-query";
import { useEffect } from "react";
import { createBackendsListener } from "@/data/backends";
import { createGalleriesListener } from "@/data/galleries";
import { createModelsListener, createReplicasListener } from "@/data/models";
import { createNodesListener } from "@/data/nodes";
import { createOperationsListener } from "@/data/operations";
import { createRolloutsListener } from "@/data/rollouts";
import { forgetSession, isNotSession } from "@/features/session/queries";
import { eventStream } from "@/live/connection";
import { queryClient } from "./queryClient";

/** Keeps what the page shows in sync with the frontend's event stream while someone is signed in. */
export function useLive(): void {
  useEffect(() => {
    const listeners: Record<string, (data: string) => void> = {
      nodes: createNodesListener(queryClient),
      operations: createOperationsListener(queryClient),
      rollouts: createRolloutsListener(queryClient),
      backends: createBackendsListener(queryClient),
      models: createModelsListener(queryClient),
      replicas: createReplicasListener(queryClient),
      galleries: createGalleriesListener(queryClient),
    };
    let wasLive = false;
    return eventStream.start({
      onConnected: () => {
        if (wasLive) void queryClient.invalidateQueries({ predicate: isNotSession });
        else readAgainLater(Date.now());
        wasLive = true;
      },
      onEvents: (events) => {
        for (const event of events) listeners[event.name]?.(event.data);
      },
      onSignedOut: () => forgetSession(queryClient),
    });
  }, []);
}

const FIRST_PAINT_IS_OVER_MS = 5000;

/** Data loaded before the event stream was connected may lack later changes, so it is loaded again. Not at once: the
 * first lists of a large fleet would be loaded twice before they are shown. */
function readAgainLater(connectedAt: number): void {
  const isOlder = (query: Query) =>
    isNotSession(query) && (query.state.fetchStatus !== "idle" || query.state.dataUpdatedAt < connectedAt);
  const older = new Set(
    queryClient
      .getQueryCache()
      .findAll({ predicate: isOlder })
      .map(({ queryHash }) => queryHash),
  );
  setTimeout(
    () => void queryClient.invalidateQueries({ predicate: ({ queryHash }) => older.has(queryHash) }),
    FIRST_PAINT_IS_OVER_MS,
  );
}
