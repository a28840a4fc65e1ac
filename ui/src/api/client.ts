import { ask, change, pathOf, query, read } from "./http";
import type {
  Attached,
  AttachRequest,
  Audit,
  Available,
  AvailableModels,
  CreatedKey,
  Dependents,
  Endpoint,
  ExternalInstallRequest,
  FleetBackend,
  FollowRequest,
  History,
  InstallRequest,
  Intent,
  JoinCommand,
  Key,
  KeyChange,
  KeyLimits,
  KeyUsage,
  LogLine,
  Model,
  ModelDetail,
  ModelExplanation,
  ModelSummary,
  NewKey,
  Node,
  NodeBackend,
  NodeExplanation,
  NodeHistory,
  Operation,
  OperationList,
  Overview,
  PinRequest,
  Policy,
  Preview,
  PolicyRequest,
  PublicRoute,
  Replica,
  Revision,
  RevisionChanges,
  RollbackRequest,
  Rollout,
  Rollouts,
  RouteBody,
  Scheduling,
  SchedulingRequest,
  Session,
  SlowBuild,
  Started,
  SystemStatus,
  Target,
  UpgradeRequest,
  Upgrades,
  UpgradesStarted,
  Usage,
} from "./types";

const nodePath = (id: string, ...rest: string[]) => pathOf("api", "nodes", id, ...rest);
const operationPath = (id: string, ...rest: string[]) => pathOf("api", "operations", id, ...rest);
const modelPath = (name: string, ...rest: string[]) => pathOf("api", "models", name, ...rest);
const targetQuery = ({ nodes = [], selector = {} }: Target) => {
  const labels = Object.entries(selector).map(([key, value]) => ["selector", `${key}=${value}`]);
  const pairs = [...nodes.map((node) => ["node", node]), ...labels];
  return pairs.length === 0 ? "" : `?${new URLSearchParams(pairs).toString()}`;
};
const ifMatch = (revision: string) => ({ headers: { "If-Match": `"${revision}"` } });

export const api = {
  /** Null when no user is signed in. */
  readSession: (signal?: AbortSignal) => read<Session | null>("api/session", signal),
  signIn: (apiKey: string) => ask<Session>("POST", "api/session", { api_key: apiKey }),
  signOut: () => change("DELETE", "api/session"),

  listNodes: (signal?: AbortSignal) => read<Node[]>("api/nodes", signal),
  approveNode: (id: string) => change("POST", nodePath(id, "approve")),
  replaceNode: (id: string, claim: string) => change("POST", nodePath(id, "approve"), { claim }),
  rejectClaim: (id: string, claim: string) => change("POST", nodePath(id, "reject"), { claim }),
  drainNode: (id: string) => change("POST", nodePath(id, "drain")),
  resumeNode: (id: string) => change("POST", nodePath(id, "resume")),
  removeNode: (id: string) => change("DELETE", nodePath(id)),
  mergeLabels: (id: string, labels: Record<string, string>) => change("PATCH", nodePath(id, "labels"), labels),
  removeLabel: (id: string, key: string) => change("DELETE", nodePath(id, "labels", key)),
  setBudget: (id: string, budget: string) => change("PUT", nodePath(id, "vram-budget"), { value: budget }),
  clearBudget: (id: string) => change("DELETE", nodePath(id, "vram-budget")),
  listNodeBackends: (id: string, signal?: AbortSignal) => read<NodeBackend[]>(nodePath(id, "backends"), signal),
  listNodeLogs: (id: string, signal?: AbortSignal) => read<string[]>(nodePath(id, "backend-logs"), signal),
  readNodeLog: (id: string, key: string, signal?: AbortSignal) =>
    read<LogLine[]>(nodePath(id, "backend-logs", key), signal),
  readNodeHistory: (id: string, signal?: AbortSignal) => read<NodeHistory>(nodePath(id, "history"), signal),
  whyNode: (id: string, signal?: AbortSignal) => read<NodeExplanation>(pathOf("api", "why", "nodes", id), signal),

  readJoinCommand: (signal?: AbortSignal) => read<JoinCommand>("api/join-command", signal),
  readStatus: (signal?: AbortSignal) => read<SystemStatus>("api/status", signal),
  readOverview: (signal?: AbortSignal) => read<Overview>("api/overview", signal),

  listOperations: async (signal?: AbortSignal) => (await read<OperationList>("api/operations", signal)).operations,
  readOperation: (id: string, signal?: AbortSignal) => read<Operation>(operationPath(id), signal),
  listHistory: async (signal?: AbortSignal) => (await read<History>("api/operations/history", signal)).operations,
  clearHistory: () => change("DELETE", "api/operations/history"),
  retryOperation: (id: string, nodeId?: string) =>
    change("POST", operationPath(id, "retry"), nodeId === undefined ? {} : { node_id: nodeId }),
  cancelOperation: (id: string) => change("POST", operationPath(id, "cancel")),
  dismissOperation: (id: string) => change("POST", operationPath(id, "dismiss")),
  listExhausted: (signal?: AbortSignal) => read<Intent[]>("api/intents?state=dead_lettered", signal),

  listRollouts: (signal?: AbortSignal) => read<Rollouts>("api/rollouts", signal),
  readRollout: (id: string, signal?: AbortSignal) => read<Rollout>(pathOf("api", "rollouts", id), signal),
  steerRollout: (id: string, action: string, reason?: string) =>
    ask<Rollout>("POST", pathOf("api", "rollouts", id, action), reason === undefined ? undefined : { reason }),

  listFleetBackends: (signal?: AbortSignal) => read<FleetBackend[]>("api/fleet/backends", signal),
  listSlowBuilds: (signal?: AbortSignal) => read<SlowBuild[]>("api/fleet/slow-builds", signal),
  listAvailable: (everything: boolean, signal?: AbortSignal) =>
    read<Available>(`api/backends/available${everything ? "?everything=true" : ""}`, signal),
  refreshGalleries: () => change("POST", "api/galleries/refresh"),
  listUpgrades: (signal?: AbortSignal) => read<Upgrades>("api/backends/upgrades", signal),
  checkUpgrades: () => change("POST", "api/backends/upgrades/check"),
  installFromUri: (backend: ExternalInstallRequest) => ask<Started>("POST", "api/backends/install-external", backend),
  installBackend: (element: string, target: InstallRequest) =>
    ask<Started>("POST", pathOf("api", "backends", "install", element), target),
  upgradeBackend: (element: string, target: UpgradeRequest) =>
    ask<Started>("POST", pathOf("api", "backends", "upgrade", element), target),
  /** What the upgrade would do; nothing is started. */
  previewUpgrade: (element: string, target: UpgradeRequest) =>
    ask<Preview>("POST", `${pathOf("api", "backends", "upgrade", element)}?dry_run=true`, target),
  upgradeAll: () => ask<UpgradesStarted>("POST", "api/backends/upgrades/apply"),
  rollbackBackend: (element: string, target: RollbackRequest) =>
    ask<Started>("POST", pathOf("api", "backends", element, "rollback"), target),
  pinBackend: (element: string, target: PinRequest) =>
    ask<Started>("POST", pathOf("api", "backends", element, "pin"), target),
  followBackend: (element: string, target: FollowRequest) =>
    ask<Started>("POST", pathOf("api", "backends", element, "follow"), target),
  readDependents: (element: string, target: Target) =>
    read<Dependents>(`${pathOf("api", "backends", element, "dependents")}${targetQuery(target)}`),
  deleteBackend: (element: string, target: Target) =>
    ask<Started>("POST", pathOf("api", "backends", "delete", element), target),
  listPolicies: (signal?: AbortSignal) => read<Policy[]>("api/policies", signal),
  changePolicy: (id: string, request: PolicyRequest) => change("PATCH", pathOf("api", "policies", id), request),
  endPolicy: (id: string) => change("DELETE", pathOf("api", "policies", id)),

  listModels: (signal?: AbortSignal) => read<Model[]>("api/models", signal),
  readModel: (name: string, signal?: AbortSignal) => read<ModelDetail>(modelPath(name), signal),
  listRevisions: (name: string, signal?: AbortSignal) => read<Revision[]>(modelPath(name, "revisions"), signal),
  listAvailableModels: (term: string, signal?: AbortSignal) =>
    read<AvailableModels>(`api/models/available${query({ term, limit: 1000 })}`, signal),
  installModel: (name: string, as: string) =>
    ask<ModelDetail>("POST", "api/models/install", { name, ...(as === "" ? {} : { as }) }),
  addModel: (config: string, force: boolean) => ask<ModelDetail>("POST", "api/models", { config, force }),
  editModel: (name: string, edit: { config: string; force: boolean; comment: string }, revision: string) =>
    ask<ModelDetail>("PUT", modelPath(name), edit, ifMatch(revision)),
  readChanges: (name: string, number: number, signal?: AbortSignal) =>
    read<RevisionChanges>(modelPath(name, "revisions", String(number), "changes"), signal),
  /** Without a number: discards the pending revision, or goes back to the last one that served. */
  rollbackModel: (name: string, revision: string, to?: number) =>
    ask<ModelDetail>(
      "POST",
      modelPath(name, "rollback"),
      to === undefined ? {} : { to: String(to) },
      ifMatch(revision),
    ),
  deleteModel: (name: string) => change("DELETE", modelPath(name)),
  loadModel: (name: string) => change("POST", modelPath(name, "load"), { wait_s: 0, retry: true }),
  unloadModel: (name: string) => change("POST", modelPath(name, "unload")),
  unloadOnNode: (nodeId: string, model: string) =>
    change("POST", nodePath(nodeId, "models", "unload"), { model_name: model }),
  whyModel: (name: string, signal?: AbortSignal) =>
    read<ModelExplanation>(pathOf("api", "why", "models", name), signal),
  listReplicas: (signal?: AbortSignal) => read<Replica[]>("api/replicas", signal),
  summariseReplicas: (signal?: AbortSignal) => read<Record<string, ModelSummary>>("api/replicas/summary", signal),
  listScheduling: (signal?: AbortSignal) => read<Scheduling[]>("api/nodes/scheduling", signal),
  saveScheduling: (request: SchedulingRequest) => change("POST", "api/nodes/scheduling", request),
  deleteScheduling: (model: string) => change("DELETE", nodePath("scheduling", model)),
  listEndpoints: (model: string, signal?: AbortSignal) => read<Endpoint[]>(modelPath(model, "endpoints"), signal),
  attachEndpoint: (model: string, request: AttachRequest) =>
    ask<Attached>("POST", modelPath(model, "endpoints"), request),
  detachEndpoint: (model: string, id: string) => change("DELETE", modelPath(model, "endpoints", id)),
  listRoutes: (signal?: AbortSignal) => read<PublicRoute[]>("api/routes", signal),
  saveRoute: (name: string, body: RouteBody) => ask<PublicRoute>("PUT", pathOf("api", "routes", name), body),
  deleteRoute: (name: string) => change("DELETE", pathOf("api", "routes", name)),

  listKeys: (signal?: AbortSignal) => read<Key[]>("api/keys", signal),
  createKey: (key: NewKey) => ask<CreatedKey>("POST", "api/keys", key),
  setKeyModels: (id: string, models: string[] | null) => change("PUT", pathOf("api", "keys", id, "models"), { models }),
  editKey: (id: string, edited: KeyChange) => change("PATCH", pathOf("api", "keys", id), edited),
  readKeyUsage: (id: string, signal?: AbortSignal) =>
    read<KeyUsage>(`${pathOf("api", "keys", id, "usage")}?days=30`, signal),
  readKeyDefaults: (signal?: AbortSignal) => read<KeyLimits>("api/key-defaults", signal),
  editKeyDefaults: (limits: KeyLimits) => change("PATCH", "api/key-defaults", limits),
  revokeKey: (id: string) => change("DELETE", pathOf("api", "keys", id)),
  listUsageByKey: (signal?: AbortSignal) => read<Usage[]>("api/usage?by=key&days=30", signal),
  listAudit: (before: number | undefined, signal?: AbortSignal) =>
    read<Audit[]>(`api/audit${query({ limit: 100, before })}`, signal),
};
