/** Lists that the event stream keeps current. */
import type { QueryClient, QueryKey } from "@tanstack/react-query";
import type { ListEvent } from "@/api/types";

/** A person does not see more often, and a burst of hundreds of events a second must leave time for typing. */
const APPLY_EVERY_MS = 100;

/** Takes events and folds them into what a query holds, in batches. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- E is the type of the parsed events
export function createBatchListener<E, D>(
  client: QueryClient,
  queryKey: QueryKey,
  fold: (data: D, events: readonly E[]) => D,
): (data: string) => void {
  let waiting: E[] = [];
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
    client.setQueryData<D>(queryKey, (data) => (data === undefined ? undefined : fold(data, events)));
  }

  return (data) => {
    waiting.push(JSON.parse(data) as E);
    if (scheduled) return;
    scheduled = true;
    setTimeout(apply, APPLY_EVERY_MS);
  };
}

/** A list after some events, for kinds whose every event is newer than what is known. */
export function applyList<T>(items: readonly T[], events: readonly ListEvent<T>[], keyOf: (item: T) => string): T[] {
  const byKey = new Map(items.map((item) => [keyOf(item), item]));
  for (const event of events) {
    for (const item of event.changed) byKey.set(keyOf(item), item);
    for (const key of event.removed) byKey.delete(key);
  }
  return [...byKey.values()];
}

const READ_AGAIN_EVERY_MS = 1000;

/** For what events only hint at: the queries are read again soon, and at most once a second. */
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
