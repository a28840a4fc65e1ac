/** Lists that the event stream keeps current. */
import type { QueryClient, QueryKey } from "@tanstack/react-query";
import type { ListEvent } from "@/api/types";

/** People cannot see faster updates, and a burst of hundreds of events per second must not block typing. */
const APPLY_EVERY_MS = 100;

/** Applies events to the data of a query, in batches. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- E is the type of the parsed events
export function createBatchListener<E, D>(
  client: QueryClient,
  queryKey: QueryKey,
  fold: (data: D, events: readonly E[]) => D,
): (data: string) => void {
  let waiting: E[] = [];
  let scheduled = false;

  function apply(): void {
    // A list request in progress may be older than these changes and would overwrite them, so it goes first.
    if (client.isFetching({ queryKey }) > 0) {
      setTimeout(apply, APPLY_EVERY_MS);
      return;
    }
    const events = waiting;
    waiting = [];
    scheduled = false;
    client.setQueryData<D>(queryKey, (data) => (data === undefined ? undefined : fold(data, events)));
  }

  return (data) => {
    waiting.push(JSON.parse(data) as E);
    if (scheduled) return;
    scheduled = true;
    setTimeout(apply, APPLY_EVERY_MS);
  };
}

/** A list after some events, for lists whose events are always newer than the list. */
export function applyList<T>(items: readonly T[], events: readonly ListEvent<T>[], keyOf: (item: T) => string): T[] {
  const byKey = new Map(items.map((item) => [keyOf(item), item]));
  for (const event of events) {
    for (const item of event.changed) byKey.set(keyOf(item), item);
    for (const key of event.removed) byKey.delete(key);
  }
  return [...byKey.values()];
}

const READ_AGAIN_EVERY_MS = 1000;

/** For events without data: reloads the queries, at most once per second. */
export function createReadAgain(client: QueryClient, ...queryKeys: QueryKey[]): () => void {
  let scheduled = false;
  return () => {
    if (scheduled) return;
    scheduled = true;
    setTimeout(() => {
      scheduled = false;
      for (const queryKey of queryKeys) void client.invalidateQueries({ queryKey });
    }, READ_AGAIN_EVERY_MS);
  };
}
