import type { QueryClient } from "@tanstack/react-query";
import type { NodesEvent } from "@/api/types";
import { nodeQueries } from "./queries";
import { applyEvents } from "./seenNodes";

/** A person does not see more often, and a burst of hundreds of events a second must leave time for typing. */
const APPLY_EVERY_MS = 100;

/** Takes `nodes` events and applies them to the roster in batches. */
export function createNodesListener(client: QueryClient): (data: string) => void {
  const { queryKey } = nodeQueries.list();
  let waiting: NodesEvent[] = [];
  let scheduled = false;

  function apply(): void {
    // A list under way may have been read before these changes and would overwrite them, so it goes first.
    if (client.isFetching({ queryKey }) > 0) {
      setTimeout(apply, APPLY_EVERY_MS);
      return;
    }
    const events = waiting;
    waiting = [];
    scheduled = false;
    client.setQueryData(queryKey, (nodes) => nodes && applyEvents(nodes, events, Date.now()));
  }

  return (data) => {
    waiting.push(JSON.parse(data) as NodesEvent);
    if (scheduled) return;
    scheduled = true;
    setTimeout(apply, APPLY_EVERY_MS);
  };
}
