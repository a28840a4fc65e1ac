import { expect, test } from "vitest";
import type {
  BackendOnNode,
  DriftCause,
  FleetBackend,
  Intent,
  Load,
  ModelSummary,
  Operation,
  OperationNode,
  Replica,
  Rollout,
  RolloutState,
  Scheduling,
} from "@/api/types";
import {
  driftingPlaces,
  failingOperations,
  failureDetail,
  failureWord,
  identityConcerns,
  modelConcerns,
  pendingEdits,
  rolloutConcerns,
  slowBuildConcerns,
  upgradableBackends,
} from "./concerns";

const node = (node_id: string, status: string) => ({ node_id, status }) as OperationNode;
const operation = (jobID: string, fields: Partial<Operation>) =>
  ({ jobID, state: "running", error: "", nodes: [], ...fields }) as Operation;
const summary = (fields: Partial<ModelSummary>): ModelSummary => ({ ready: 0, replicas: [], loads: [], ...fields });
const load = (fields: Partial<Load>): Load => ({
  model: "m",
  state: "pending",
  progress: 0,
  bytes_sent: 0,
  total_bytes: 0,
  file_index: 0,
  total_files: 0,
  ...fields,
});
const two = { min_replicas: 2, max_replicas: 2, spread_all: false };
const concerns = (of: ModelSummary, replicas: Replica[] = [], scheduling: Scheduling[] = []) =>
  modelConcerns({ m: of }, replicas, scheduling);

test("an operation that fails is listed, also while it is retried", () => {
  const retried = operation("retried", { error: "one: disk full", nodes: [node("1", "error"), node("2", "success")] });
  const failed = operation("failed", { state: "failed" });
  const fine = operation("fine", { nodes: [node("1", "downloading")] });
  expect(failingOperations([retried, failed, fine], [])).toEqual([retried, failed]);
});

test("a failure is shown for the first few nodes, not for the whole fleet", () => {
  const failed = (name: string) => ({ node_name: name, status: "error", error: "disk full" }) as OperationNode;
  expect(failureDetail({ jobID: "a", error: "a: disk full", nodes: [failed("a"), node("2", "success")] })).toBe(
    "a: disk full.",
  );
  expect(failureDetail({ jobID: "a", error: "", nodes: ["a", "b", "c", "d", "e"].map(failed) })).toBe(
    "a: disk full. b: disk full. c: disk full. And 2 more.",
  );
  expect(failureDetail({ jobID: "a", error: "no node fits", nodes: [] })).toBe("No node fits.");
});

test("a failure is shown as retrying only while its nodes get commands", () => {
  const again = {
    node_id: "1",
    node_name: "one",
    status: "error",
    next_attempt_at: "2026-01-01T00:00:00Z",
  } as OperationNode;
  const open = { finished_at: null, state: "running", nodes: [again] } as const;
  expect(failureWord({ ...open, nodes: [again], retrying: true }, new Map())).toBe("failed; retrying");
  expect(failureWord({ ...open, nodes: [again], retrying: true }, new Map([["1", "offline"]]))).toBe(
    "failed; waiting for one",
  );
  expect(failureWord({ ...open, nodes: [], retrying: false }, new Map())).toBe("partially failed");
  expect(
    failureWord(
      { ...open, nodes: [again], finished_at: "2026-01-01T00:00:00Z", state: "failed", retrying: false },
      new Map(),
    ),
  ).toBe("failed");
});

test("a machine that claims to be a node needs attention, also when it cannot take the name yet", () => {
  const claim = {
    id: "c",
    address: "10.0.0.9",
    http_address: "10.0.0.9:50050",
    localai: false,
    made_at: "2026-01-01T00:00:00Z",
    seen_at: "2026-01-01T00:00:00Z",
  };
  const conflict = { message: "a second machine tried to register", at: "2026-01-01T00:00:00Z" };
  const node = { id: "1", name: "one", claims: [], conflict: null };
  expect(identityConcerns([node])).toEqual([]);
  expect(identityConcerns([{ ...node, conflict }])).toEqual([
    { id: "1", text: "Another machine claims to be one", detail: "A second machine tried to register." },
  ]);
  const [found] = identityConcerns([{ ...node, conflict, claims: [claim, claim] }]);
  expect(found?.detail).toMatch(
    /^It registered from 10\.0\.0\.9 at .*\. Replace one with it, or reject it\. 1 more claim the same name\.$/,
  );
});

test("a node whose retries are exhausted is not listed a second time with its operation", () => {
  const exhausted = { operation_id: "a", node_id: "1" } as Intent;
  const whole = operation("a", { state: "failed", error: "one: disk full", nodes: [node("1", "error")] });
  const more = operation("a", { error: "one: disk full", nodes: [node("1", "error"), node("2", "error")] });
  expect(failingOperations([whole], [exhausted])).toEqual([]);
  expect(failingOperations([more], [exhausted])).toEqual([more]);
  const named = more.nodes.map((each) => ({ ...each, node_name: `n${each.node_id}`, error: "disk full" }));
  expect(failureDetail({ ...more, nodes: named }, [exhausted])).toBe("n2: disk full.");
});

test("drift of a node whose retries are exhausted is not listed a second time", () => {
  const place = (node_id: string, ...causes: DriftCause[]) =>
    ({ node_id, drift: causes.map((cause) => ({ cause })) }) as BackendOnNode;
  const backends: FleetBackend[] = [
    {
      name: "lost",
      nodes: [place("1", "missing"), place("2", "missing"), place("3", "missing", "old_process"), place("4")],
    },
  ];
  const exhausted = ["1", "3"].map((node_id) => ({ backend: "lost", node_id }));
  expect(driftingPlaces(backends, exhausted).map(({ backend, place: { node_id } }) => [backend, node_id])).toEqual([
    ["lost", "2"],
    ["lost", "3"],
  ]);
});

test("a failed model is listed with each cause once", () => {
  const failed = { model_name: "m", corral_state: "failed", reason: "the process died" } as Replica;
  expect(concerns(summary({ loads: [load({ error: "no such file" }), load({ error: "no such file" })] }))).toEqual([
    { model: "m", tone: "bad", text: "m failed", detail: "no such file." },
  ]);
  expect(
    concerns(summary({ ready: 1, desired: two, replicas: [{ node: "a", slot: 0, state: "failed", reason: "" }] }), [
      failed,
    ]),
  ).toEqual([{ model: "m", tone: "bad", text: "m failed on a node", detail: "the process died." }]);
});

test("a model below its desired replicas is listed, with a milder tone while it loads", () => {
  expect(
    concerns(
      summary({ ready: 1, desired: two, loads: [load({ state: "loading", reason: "its process is being started" })] }),
    ),
  ).toEqual([{ model: "m", tone: "wait", text: "m is loading: 1 of 2 replicas ready", detail: "" }]);
  expect(
    concerns(summary({ ready: 1, desired: two, loads: [load({ reason: "no node has capacity" })] }))[0],
  ).toMatchObject({
    tone: "warn",
    detail: "No node has capacity.",
  });
  expect(
    concerns(summary({ ready: 1, desired: two, replicas: [{ node: "b", slot: 0, state: "offline", reason: "" }] }))[0],
  ).toMatchObject({ tone: "warn", text: "m has 1 of 2 replicas ready", detail: "Its replica on b is offline." });
  expect(concerns(summary({ ready: 2, desired: two }))).toEqual([]);
  expect(concerns(summary({}))).toEqual([]);
  expect(
    concerns(
      summary({ ready: 1, desired: two }),
      [],
      [{ model_name: "m", unsatisfiable_reason: "one node only" } as Scheduling],
    )[0],
  ).toMatchObject({
    text: "m: desired replicas cannot be placed",
    detail: "One node only.",
  });
});

test("a backend that is pinned or held back everywhere is not listed as upgradable", () => {
  const drift = (...pins: string[]) => ({
    node_drift: pins.map((pinned) => ({ pinned, held_back: "", rolling_out: "" })),
  });
  const failed = { node_drift: [{ pinned: "", held_back: "2.0 is held back", rolling_out: "" }] };
  const running = { node_drift: [{ pinned: "", held_back: "", rolling_out: "wave 2 has not begun" }] };
  expect(
    upgradableBackends({
      held: drift("pinned to 1"),
      partly: drift("pinned to 1", ""),
      newer: drift(""),
      failed,
      running,
    }),
  ).toEqual(["partly", "newer"]);
});

test("rollouts that wait for a person and versions that failed are listed, running and allowed ones are not", () => {
  const rollout = (state: RolloutState, held_back = false, is_overdue = false) => ({
    id: state,
    backend: "echo",
    versions: [{ version: "2.0" }, { version: "2.0" }] as Rollout["versions"],
    state,
    reason: "it crashed",
    summary: "paused in wave 1 of 2: lunch",
    held_back,
    is_overdue,
  });
  expect(rolloutConcerns([rollout("running", false, true)])).toEqual([
    {
      id: "running",
      tone: "warn",
      text: "The rollout of echo 2.0 makes no progress",
      detail: "Paused in wave 1 of 2: lunch.",
    },
  ]);
  expect(rolloutConcerns([rollout("running"), rollout("completed"), rollout("aborted"), rollout("failed")])).toEqual(
    [],
  );
  expect(rolloutConcerns([rollout("paused"), rollout("failed", true)])).toEqual([
    {
      id: "paused",
      tone: "warn",
      text: "The rollout of echo 2.0 is paused",
      detail: "Paused in wave 1 of 2: lunch.",
    },
    {
      id: "failed",
      tone: "bad",
      text: "The rollout of echo 2.0 failed; the version is held back",
      detail: "It crashed.",
    },
  ]);
});

test("lists an edit that could not be loaded, not one that is loading", () => {
  const pending = {
    revision: "2",
    number: 2,
    serving: "1",
    serving_number: 1,
    reason: "no such file",
    failures: 1,
    held: false,
  };
  expect(
    pendingEdits([
      { name: "m", pending: null },
      { name: "n", pending: { ...pending, failures: 0 } },
    ]),
  ).toEqual([]);
  expect(pendingEdits([{ name: "m", pending }])).toEqual([
    {
      model: "m",
      tone: "warn",
      text: "Edit of m could not be loaded; the previous revision still serves",
      detail: "No such file.",
    },
  ]);
});

test("a CPU build on a node with an accelerator is listed with the command that corrects it", () => {
  const slow = {
    node_id: "n",
    node_name: "gpu-1",
    backend: "llama-cpp",
    build: "cpu-llama-cpp",
    capability: "nvidia-cuda-12",
    reason: "cpu-llama-cpp uses only the processor of gpu-1",
    remedy: "`corral backends install llama-cpp --node gpu-1`",
  };
  expect(slowBuildConcerns([slow])).toEqual([
    {
      key: "slow llama-cpp n",
      node: "gpu-1",
      text: "llama-cpp does not use the accelerator of gpu-1",
      detail:
        "cpu-llama-cpp uses only the processor of gpu-1. To correct it: `corral backends install llama-cpp --node gpu-1`",
    },
  ]);
});

test("a model whose attached endpoints are all offline is not reachable", () => {
  const endpoint = (corral_state: Replica["corral_state"], node: string) =>
    ({ model_name: "m", backend_type: "attached", corral_state, node, reason: "no answer" }) as Replica;
  const away = endpoint("offline", "10.0.0.2:8000");
  expect(concerns(summary({}), [away])).toEqual([
    { model: "m", tone: "bad", text: "m is not reachable", detail: "10.0.0.2:8000: no answer." },
  ]);
  expect(concerns(summary({ ready: 1 }), [away, endpoint("ready", "10.0.0.3:8000")])).toEqual([]);
});
