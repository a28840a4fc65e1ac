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
export type Verb = Schemas["Verb"];
export type OperationList = Schemas["OperationList"];
export type History = Schemas["History"];
export type HistoryEntry = Schemas["HistoryEntry"];
export type Intent = Schemas["IntentView"];
export type OnDrift = Schemas["OnDrift"];
export type Policy = Schemas["PolicyView"];
export type PolicyException = Schemas["ExceptionView"];
export type Available = Schemas["AvailableBackends"];
export type Gallery = Schemas["GalleryView"];
export type BackendOffer = Schemas["BackendOffer"];
export type Preview = Schemas["PreviewView"];
export type Started = Schemas["OperationStarted"];
export type Model = Schemas["ModelObject"];
export type ModelDetail = Schemas["ModelDetail"];
export type Revision = Schemas["RevisionView"];
export type RevisionChanges = Schemas["RevisionChanges"];
export type AvailableModel = Schemas["AvailableModel"];
export type AvailableModels = Schemas["AvailablePage"];
export type Key = Schemas["KeyView"];
export type CreatedKey = Schemas["CreatedKey"];
export type KeyScope = Schemas["Scope"];
export type KeyLimits = Schemas["LimitsView"];
export type KeyLimitsInForce = Schemas["LimitsInForceView"];
export type KeyUsage = Schemas["KeyUsageView"];
export type KeyChange = Partial<Schemas["KeyChange"]>;
export type Usage = Schemas["UsageView"];
export type Audit = Schemas["AuditEntry"];
export type Overview = Schemas["OverviewView"];
export type OverviewSample = Schemas["SampleView"];
export type NodeHistory = Schemas["NodeHistoryView"];
export type NodeMinute = Schemas["MinuteView"];
export type DriftCause = Schemas["DriftCause"];
export type Drift = Schemas["DriftView"];
export type BackendOnNode = Schemas["BackendOnNode"];
export type SlowBuild = Schemas["SlowBuild"];
export type FleetBackend = Schemas["FleetBackend"];
export type NodeBackend = Schemas["NodeBackend"];
export type Dependents = Schemas["Dependents"];
export type DependentModel = Schemas["DependentModel"];
/** By backend. */
export type Upgrades = Record<string, Schemas["UpgradeView"]>;
export type UpgradesStarted = Schemas["UpgradesStarted"];
export type ReplicaState = Schemas["ReplicaViewState"];
export type Replica = Schemas["ReplicaObject"];
export type LoadState = Schemas["LoadState"];
export type Load = Schemas["LoadView"];
export type ModelSummary = Schemas["ModelSummary"];
export type ModelExplanation = Schemas["ModelExplanation"];
export type NodeExplanation = Schemas["NodeExplanation"];
export type Scheduling = Schemas["SchedulingView"];
export type Endpoint = Schemas["EndpointObject"];
export type Attached = Schemas["AttachAnswer"];
export type AttachRequest = Schemas["AttachRequest"];
export type PublicRoute = Schemas["RouteView"];
export type RouteBody = Schemas["RouteBody"];
export type UpstreamProtocol = Schemas["UpstreamProtocol"];
export type LogLine = Schemas["LogLineView"];

export type Rollouts = Schemas["RolloutList"];
export type Rollout = Schemas["RolloutView"];
export type ModelRollout = Schemas["ModelRolloutView"];
export type RolloutState = Schemas["RolloutState"];
export type RolloutWave = Schemas["RolloutWaveView"];
export type RolloutNode = Schemas["RolloutNodeView"];
export type RolloutEvent = Schemas["RolloutEventView"];
export type GateVerdict = Schemas["GateVerdict"];

/** A request without the fields that have defaults; the generated types require every field of a request. */
type Request<T, Needed extends keyof T = never> = Partial<T> & Pick<T, Needed>;

/** The nodes that a change applies to; with neither field, every node. */
export type Target = Request<Schemas["Targeted"]>;
export type InstallRequest = Request<Schemas["InstallBody"]>;
export type ExternalInstallRequest = Request<Schemas["ExternalInstallBody"], "uri">;
export type UpgradeRequest = Request<Schemas["UpgradeBody"]>;
export type PinRequest = Request<Schemas["PinBody"], "version">;
export type FollowRequest = Request<Schemas["FollowBody"]>;
export type RollbackRequest = Request<Schemas["RollbackBody"]>;
export type PolicyRequest = Request<Schemas["PolicyBody"]>;
export type SchedulingRequest = Request<Schemas["SchedulingRequest"], "model_name">;
export type NewKey = Request<Schemas["NewKey"], "name">;

/** The data of an event in the stream of a list, which OpenAPI cannot describe. */
export interface ListEvent<T> {
  changed: T[];
  removed: string[];
}

export type NodesEvent = ListEvent<Node>;
