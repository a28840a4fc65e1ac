/** The admin API's objects that the UI reads. Byte fields are null when unknown, which is not zero. */

export type NodeStatus = "pending" | "healthy" | "unhealthy" | "offline" | "draining";

export interface Gpu {
  name: string | null;
  vendor: string;
  memory_total_bytes: number | null;
  memory_free_bytes: number | null;
  /** The GPU has no memory of its own: it shares the machine's. */
  unified: boolean;
}

export interface IdentityConflict {
  message: string;
  at: string;
}

export interface Node {
  id: string;
  name: string;
  node_type: string;
  address: string;
  http_address: string;
  status: NodeStatus;
  status_reason: string;
  approved: boolean;
  draining: boolean;
  conflict: IdentityConflict | null;
  last_seen_age_s: number | null;
  last_heartbeat: string | null;
  created_at: string;
  updated_at: string;
  version: string | null;
  platform: string | null;
  cpu_model: string | null;
  cpu_count: number | null;
  gpus: Gpu[];
  gpu_vendor: string | null;
  gpu_compute_capability: string | null;
  capability: string | null;
  /** Why this capability and no other. */
  capability_reason: string | null;
  /** What the worker could not find out about its machine. */
  problems: string[];
  total_vram: number | null;
  available_vram: number | null;
  reserved_vram: number;
  total_ram: number | null;
  available_ram: number | null;
  total_disk: number | null;
  available_disk: number | null;
  max_replicas_per_model: number;
  model_count: number;
  in_flight_count: number;
  /** The operators' words over the worker's, over what follows from the machine. */
  labels: Record<string, string>;
  worker_labels: Record<string, string>;
  operator_labels: Record<string, string>;
}

export interface Session {
  name: string;
  scope: string;
}

export interface JoinCommand {
  url: string;
  token: string;
  command: string;
}

export interface FrontendStatus {
  id: string;
  url: string;
  version: string;
  age_s: number;
}

export interface SystemStatus {
  version: string;
  frontend_id: string;
  frontends: FrontendStatus[];
  store: { kind: string; location: string; ok: boolean };
  bus: { url: string; connected: boolean; problem: string };
  nodes: Record<NodeStatus, number>;
}

export interface NodesEvent {
  changed: Node[];
  removed: string[];
}
