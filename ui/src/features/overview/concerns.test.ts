import { expect, test } from "vitest";
import type {
  DriftCause,
  FleetBackend,
  FleetPlace,
  Intent,
  ModelSummary,
  Operation,
  OperationNode,
  Replica,
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
  upgradableBackends,
} from "./concerns";

const node = (node_id: string, status: string) => ({ node_id, status }) as OperationNode;
const operation = (jobID: string, fields: Partial<Operation>) =>
  ({ jobID, state: "running", error: "", nodes: [], ...fields }) as Operation;
const summary = (fields: Partial<ModelSummary>): ModelSummary => ({ ready: 0, replicas: [], loads: [], ...fields });
const load = (fields: object) => ({
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

test("an operation that fails is told, also while it is tried again", () => {
  const retried = operation("retried", { error: "one: no room", nodes: [node("1", "error"), node("2", "success")] });
  const failed = operation("failed", { state: "failed" });
  const fine = operation("fine", { nodes: [node("1", "downloading")] });
  expect(failingOperations([retried, failed, fine], [])).toEqual([retried, failed]);
});

test("a failure is told node by node, and not of a whole herd", () => {
  const failed = (name: string) => ({ node_name: name, status: "error", error: "no room" }) as OperationNode;
  expect(failureDetail({ jobID: "a", error: "a: no room", nodes: [failed("a"), node("2", "success")] })).toBe(
    "a: no room.",
  );
  expect(failureDetail({ jobID: "a", error: "", nodes: ["a", "b", "c", "d", "e"].map(failed) })).toBe(
    "a: no room. b: no room. c: no room. And 2 more.",
  );
  expect(failureDetail({ jobID: "a", error: "no node fits", nodes: [] })).toBe("No node fits.");
});

test("a failure is said to be retried only while its nodes can be asked", () => {
  const again = {
    node_id: "1",
    node_name: "one",
    status: "error",
    next_attempt_at: "2026-01-01T00:00:00Z",
  } as OperationNode;
  const open = { finished_at: null, state: "running", nodes: [again] } as const;
  expect(failureWord({ ...open, nodes: [again], retrying: true }, new Map())).toBe("failed and is retried");
  expect(failureWord({ ...open, nodes: [again], retrying: true }, new Map([["1", "away"]]))).toBe(
    "failed and waits for one",
  );
  expect(failureWord({ ...open, nodes: [], retrying: false }, new Map())).toBe("partially failed");
  expect(
    failureWord(
      { ...open, nodes: [again], finished_at: "2026-01-01T00:00:00Z", state: "failed", retrying: false },
      new Map(),
    ),
  ).toBe("failed");
});

test("a machine that claims to be a node needs attention, also where it may not take the name yet", () => {
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
  const [told] = identityConcerns([{ ...node, conflict, claims: [claim, claim] }]);
  expect(told?.detail).toMatch(
    /^It registered from 10\.0\.0\.9 at .* and waits until you replace one or reject it\. 1 more claim it too\.$/,
  );
});

test("what is told of an operation because a machine gave up is not told twice", () => {
  const givenUp = { operation_id: "a", node_id: "1" } as Intent;
  const whole = operation("a", { state: "failed", error: "one: no room", nodes: [node("1", "error")] });
  const more = operation("a", { error: "one: no room", nodes: [node("1", "error"), node("2", "error")] });
  expect(failingOperations([whole], [givenUp])).toEqual([]);
  expect(failingOperations([more], [givenUp])).toEqual([more]);
  const named = more.nodes.map((each) => ({ ...each, node_name: `n${each.node_id}`, error: "no room" }));
  expect(failureDetail({ ...more, nodes: named }, [givenUp])).toBe("n2: no room.");
});

test("a place that differs because an order was given up is not told twice", () => {
  const place = (node_id: string, ...causes: DriftCause[]) =>
    ({ node_id, drift: causes.map((cause) => ({ cause })) }) as FleetPlace;
  const backends: FleetBackend[] = [
    {
      name: "lost",
      nodes: [place("1", "missing"), place("2", "missing"), place("3", "missing", "old_process"), place("4")],
    },
  ];
  const givenUp = ["1", "3"].map((node_id) => ({ backend: "lost", node_id }));
  expect(driftingPlaces(backends, givenUp).map(({ backend, place: { node_id } }) => [backend, node_id])).toEqual([
    ["lost", "2"],
    ["lost", "3"],
  ]);
});

test("a model that failed is told with its cause, each once", () => {
  const failed = { model_name: "m", corral_state: "failed", reason: "the process died" } as Replica;
  expect(concerns(summary({ loads: [load({ error: "no such file" }), load({ error: "no such file" })] }))).toEqual([
    { model: "m", tone: "bad", text: "m failed", detail: "no such file." },
  ]);
  expect(
    concerns(summary({ ready: 1, wanted: two, replicas: [{ node: "a", slot: 0, state: "failed" }] }), [failed]),
  ).toEqual([{ model: "m", tone: "bad", text: "m failed on a machine", detail: "the process died." }]);
});

test("a model with fewer replicas than wanted is told, mildly while it is being loaded", () => {
  expect(
    concerns(
      summary({ ready: 1, wanted: two, loads: [load({ state: "loading", reason: "its process is being started" })] }),
    ),
  ).toEqual([{ model: "m", tone: "wait", text: "m is being loaded: 1 of 2 replicas ready", detail: "" }]);
  expect(concerns(summary({ ready: 1, wanted: two, loads: [load({ reason: "no node has room" })] }))[0]).toMatchObject({
    tone: "warn",
    detail: "No node has room.",
  });
  expect(
    concerns(summary({ ready: 1, wanted: two, replicas: [{ node: "b", slot: 0, state: "away" }] }))[0],
  ).toMatchObject({ tone: "warn", text: "m has 1 of 2 replicas ready", detail: "Its replica on b is away." });
  expect(concerns(summary({ ready: 2, wanted: two }))).toEqual([]);
  expect(concerns(summary({}))).toEqual([]);
  expect(
    concerns(
      summary({ ready: 1, wanted: two }),
      [],
      [{ model_name: "m", min_replicas: 2, max_replicas: 2, unsatisfiable_reason: "one node only" }],
    )[0],
  ).toMatchObject({
    text: "m cannot be as wanted",
    detail: "One node only.",
  });
});

test("what was rolled back everywhere is no upgrade to make", () => {
  const drift = (...rolled: boolean[]) => ({ node_drift: rolled.map((rolled_back) => ({ rolled_back })) });
  expect(upgradableBackends({ held: drift(true), partly: drift(true, false), newer: drift(false) })).toEqual([
    "partly",
    "newer",
  ]);
});

test("tells an edit that could not be loaded, not one that is being loaded", () => {
  const pending = { revision: "2", serving: "1", reason: "no such file", failures: 1, held: false };
  expect(
    pendingEdits([
      { name: "m", pending: null },
      { name: "n", pending: { ...pending, failures: 0 } },
    ]),
  ).toEqual([]);
  expect(pendingEdits([{ name: "m", pending }])).toEqual([
    { model: "m", text: "The edit of m could not be loaded; the revision before serves on", detail: "No such file." },
  ]);
});
