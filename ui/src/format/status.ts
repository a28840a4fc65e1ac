import type { NodeStatus } from "@/api/types";

/** Statuses that need attention come first. */
export const STATUSES = [
  "pending",
  "unhealthy",
  "offline",
  "joining",
  "draining",
  "healthy",
] as const satisfies readonly NodeStatus[];

export const STATUS_WORDS: Record<NodeStatus, string> = {
  pending: "Pending",
  unhealthy: "Unhealthy",
  offline: "Offline",
  joining: "Joining",
  draining: "Draining",
  healthy: "Healthy",
};
