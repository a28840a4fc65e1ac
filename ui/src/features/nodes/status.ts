import type { Node, NodeStatus } from "@/api/types";
import { STATUSES } from "@/format/status";
import { sentence } from "@/format/text";

/** Shown when the server gives no reason for a status. */
const STATUS_MEANING: Record<NodeStatus, string> = {
  pending: "Waiting for approval",
  unhealthy: "Reachable but unhealthy",
  offline: "No heartbeat",
  joining: "Approved; not ready yet",
  draining: "Gets no new work",
  healthy: "",
};

export function isStatus(text: string): text is NodeStatus {
  return (STATUSES as readonly string[]).includes(text);
}

export function reasonFor(node: Node): string {
  return node.status_reason === "" ? STATUS_MEANING[node.state] : sentence(node.status_reason);
}

export function countByStatus(nodes: readonly Node[]): Record<NodeStatus, number> {
  const counts: Record<NodeStatus, number> = {
    pending: 0,
    unhealthy: 0,
    offline: 0,
    joining: 0,
    draining: 0,
    healthy: 0,
  };
  for (const node of nodes) counts[node.state] += 1;
  return counts;
}

export type NodeAction = "approve" | "drain" | "resume" | "labels" | "budget" | "remove";

/** The actions offered for a node; the server validates them. */
export function actionsFor(node: Node): NodeAction[] {
  if (!node.approved) return ["approve", "labels", "remove"];
  const gpu: NodeAction[] = node.total_vram ? ["budget"] : [];
  return [node.draining ? "resume" : "drain", "labels", ...gpu, "remove"];
}
