/** The API's objects by the names the UI uses. Byte fields are null when unknown, which is not zero. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Node = Schemas["NodeView"];
/** The state shown to people; the `status` of a node is the same in LocalAI's words, which have no joining. */
export type NodeStatus = Schemas["NodeState"];
export type Gpu = Schemas["GpuView"];
export type Session = Schemas["SessionView"];
export type JoinCommand = Schemas["JoinCommand"];
export type SystemStatus = Schemas["StatusView"];
export type Operation = Schemas["OperationView"];
export type OperationNode = Schemas["OperationNodeView"];
export type NodeProgressStatus = Schemas["NodeProgressStatus"];
export type OperationList = Schemas["OperationList"];
export type History = Schemas["History"];
export type HistoryEntry = Schemas["HistoryEntry"];
export type Intent = Schemas["IntentView"];
export type Policy = Schemas["PolicyView"];
export type PolicyException = Schemas["ExceptionView"];
export type Available = Schemas["AvailableBackends"];
export type Gallery = Schemas["GalleryView"];
export type BackendOffer = Schemas["BackendOffer"];
export type Started = Schemas["OperationStarted"];
export type Model = Schemas["ModelObject"];
export type ModelDetail = Schemas["ModelDetail"];
export type Revision = Schemas["RevisionView"];
export type AvailableModel = Schemas["AvailableModel"];
export type AvailableModels = Schemas["AvailablePage"];
export type Key = Schemas["KeyView"];
export type CreatedKey = Schemas["CreatedKey"];
export type KeyScope = Schemas["Scope"];
export type Usage = Schemas["UsageView"];
export type Audit = Schemas["AuditEntry"];
export type Overview = Schemas["OverviewView"];
export type OverviewSample = Schemas["SampleView"];
export type NodeHistory = Schemas["NodeHistoryView"];
export type NodeMinute = Schemas["MinuteView"];

/** The nodes that a change applies to; with neither field, every node. */
export interface Target {
  nodes?: string[];
  selector?: Record<string, string>;
}

// From here on: objects whose fields the OpenAPI document does not describe.

/** The data of an event. */
export interface ListEvent<T> {
  changed: T[];
  removed: string[];
}

export type NodesEvent = ListEvent<Node>;

export type DriftCause = "missing" | "extra" | "wrong_version" | "wrong_variant" | "old_process";

export interface Drift {
  cause: DriftCause;
  detail: string;
  process_key: string;
}

export interface FleetPlace {
  node_id: string;
  node_name: string;
  node_status: NodeStatus;
  version: string;
  digest: string;
  variant: string;
  current: boolean;
  /** The requested change that is not done: install, upgrade ...; empty when there is none. */
  pending: string;
  drift: Drift[];
  /** Digests on the node's disk, newest first. */
  versions: string[];
  /** To which version it is pinned, since when, by whom and why; empty when it follows the galleries. */
  pinned: string;
  /** Why the check for upgrades is impossible; empty when it is possible. */
  unchecked: string;
}

export interface FleetBackend {
  name: string;
  nodes: FleetPlace[];
}

export interface BackendUse {
  model: string;
  /** Replicas that stop when the backend is deleted. */
  replicas: number;
}

export interface Upgrade {
  backend_name: string;
  installed_version: string;
  available_version: string;
  node_drift: {
    node_id: string;
    node_name: string;
    version: string;
    available_version: string;
    cause: string;
    pinned: string;
  }[];
}

export type Upgrades = Record<string, Upgrade>;

export interface NodeBackend {
  name: string;
  is_system: boolean;
  is_meta: boolean;
  installed_at?: string;
  version?: string;
  digest?: string;
  concrete?: string;
  versions?: string[];
  problem?: string;
}

export type ReplicaState = "starting" | "loading" | "ready" | "draining" | "stopping" | "failed" | "offline";

export interface Replica {
  id: string;
  node_id: string;
  model_name: string;
  replica_index: number;
  address: string;
  corral_state: ReplicaState;
  in_flight: number;
  last_used: string | null;
  created_at: string | null;
  backend_type?: string;
  config_revision?: string;
  reason?: string;
  protocol?: string;
  cleanup_error?: string;
  memory_bytes?: number;
  capacity?: number;
  ready_at?: string;
}

export interface Load {
  model: string;
  state: string;
  node?: string;
  progress: number;
  bytes_sent: number;
  total_bytes: number;
  file_index: number;
  total_files: number;
  eta_seconds?: number;
  reason?: string;
  error?: string;
  cause: string;
  attempts: number;
}

/** The replicas of a model, its desired replicas, and its loads. */
export interface ModelSummary {
  ready: number;
  replicas: { node: string; slot: number; state: ReplicaState }[];
  loads: Omit<Load, "cause" | "attempts">[];
  desired?: { min_replicas: number; max_replicas: number; spread_all: boolean };
}

export interface Candidate {
  node_id: string;
  node?: string;
  verdict: string;
  reason: string;
  score: number | null;
}

export interface WhyModel {
  model: string;
  revision: string;
  replicas: (Replica & { node: string })[];
  loads: Load[];
  /** The highest memory use of a replica of this revision, by kind of device; empty before the first run. */
  footprint_bytes: Record<string, number>;
  decisions: { id: string; at: string; cause: string; outcome: string; candidates?: Candidate[] }[];
  unsatisfiable?: string;
}

export interface WhyNode {
  node: string;
  status: NodeStatus;
  reason: string;
  replicas: Replica[];
  decisions: { model: string; at: string; cause: string; verdict: string; reason: string; score: number | null }[];
}

export interface Scheduling {
  model_name: string;
  min_replicas: number;
  max_replicas: number;
  /** JSON text. */
  node_selector?: string;
  spread_all?: boolean;
  unsatisfiable_reason?: string;
}

export interface SchedulingSpec {
  model_name: string;
  min_replicas: number;
  max_replicas: number;
  spread_all: boolean;
  node_selector: Record<string, string> | null;
}

export interface LogLine {
  timestamp: string;
  stream: "stdout" | "stderr";
  text: string;
}
