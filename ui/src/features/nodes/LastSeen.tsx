import { useNow } from "@/components/useNow";
import { formatAge, formatDateTime } from "@/format/time";
import type { SeenNode } from "@/data/nodes";
import { lastSeenAgeS } from "./seenNodes";

export function LastSeen({ node }: { node: SeenNode }) {
  const now = useNow();
  return <time title={formatDateTime(node.last_heartbeat)}>{formatAge(lastSeenAgeS(node, now))}</time>;
}
