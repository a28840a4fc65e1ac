import { expect, test } from "vitest";
import type { Operation, OperationNode } from "@/api/types";
import { pillOf, progressWords, stateOf, summaryOf, titleOf, unconfirmedText, waitingWords } from "./words";

const node = (fields: Partial<OperationNode>) =>
  ({
    node_id: "1",
    node_name: "one",
    status: "queued",
    percentage: 0,
    phase: "",
    bytes_done: null,
    bytes_total: null,
    rate_bytes_per_s: null,
    eta_s: null,
    next_attempt_at: null,
    ...fields,
  }) as OperationNode;
const operation = (nodes: OperationNode[], fields: Partial<Operation> = {}) =>
  ({ verb: "install", name: "llama-cpp", state: "running", cancellable: true, nodes, ...fields }) as Operation;

test("counts the nodes that take part", () => {
  const nodes = [node({ status: "success" }), node({ status: "error" }), node({ status: "not_applicable" }), node({})];
  expect(summaryOf(operation(nodes))).toBe("1 of 3 nodes done, 1 failed");
  expect(summaryOf(operation([node({})], { cancellable: false }))).toBe("0 of 1 node done, cancelling");
  expect(titleOf(operation([]))).toBe("Install llama-cpp");
});

const NONE = new Map<string, "offline" | "drained">();

test("a failure that is retried is not shown as running", () => {
  expect(stateOf(operation([], { retrying: true }), NONE)).toEqual({ word: "Retrying", tone: "red" });
  expect(stateOf(operation([], { isQueued: true }), NONE)).toEqual({ word: "Queued", tone: "blue" });
  expect(stateOf(operation([]), NONE)).toEqual({ word: "Running", tone: "blue" });
});

test("an operation with failed nodes is shown as partially failed", () => {
  expect(stateOf(operation([node({ status: "error" }), node({ status: "error" }), node({})]), NONE)).toEqual({
    word: "Partially failed",
    tone: "red",
  });
  expect(stateOf(operation([node({ status: "error" })], { state: "cancelled" }), NONE)).toEqual({
    word: "Cancelled",
    tone: "grey",
  });
});

test("names the nodes that the rest of an operation waits for", () => {
  const held = new Map([
    ["barn", "offline"],
    ["shed", "drained"],
    ["loft", "offline"],
  ] as const);
  const at = (name: string, fields: Partial<OperationNode> = {}) => node({ node_id: name, node_name: name, ...fields });
  const done = at("home", { status: "success" });
  expect(stateOf(operation([done, at("barn")]), held)).toEqual({ word: "Waiting for barn", tone: "grey" });
  expect(stateOf(operation([at("barn"), at("shed"), at("loft")], { isQueued: true }), held).word).toBe(
    "Waiting for barn, shed and 1 more",
  );
  expect(stateOf(operation([at("barn"), at("home")]), held).word).toBe("Running");
  expect(
    stateOf(
      operation([at("barn", { status: "error", next_attempt_at: "2026-01-01T00:00:00Z" })], { retrying: true }),
      held,
    ),
  ).toEqual({ word: "Waiting for barn", tone: "red" });
  expect(stateOf(operation([at("barn")], { state: "cancelled" }), held).word).toBe("Cancelled");
});

test("shows what a node is waiting for", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const due = (next_attempt_at: string | null, fields: Partial<OperationNode> = {}) =>
    node({ attempts: 1, next_attempt_at, ...fields });
  expect(waitingWords(due("2026-01-01T00:00:30Z"), null, now)).toBe("Attempt 2 in 30 s.");
  expect(waitingWords(due("2025-12-31T23:59:30Z", { attempts: 0 }), null, now)).toBe("Retry due now.");
  expect(waitingWords(due("2025-12-31T23:59:30Z"), "offline", now)).toBe(
    "The node is offline; this continues when it returns.",
  );
  expect(waitingWords(due(null, { status: "error" }), "offline", now)).toBe("");
  expect(waitingWords(due(null), null, now)).toBe("");
  expect(waitingWords(due(null), "drained", now)).toBe("The node is drained; this continues when it is resumed.");
});

test("shows only the known parts of a node's progress", () => {
  expect(
    progressWords(
      node({
        status: "downloading",
        phase: "downloading",
        percentage: 49.6,
        bytes_done: 1 << 20,
        bytes_total: 2 << 20,
        rate_bytes_per_s: 1 << 20,
        eta_s: 1,
      }),
    ),
  ).toBe("1.0 / 2.0 MiB · 50 % · 1.0 MiB/s · 1 s left");
  expect(progressWords(node({ status: "running_on_worker", percentage: 99, phase: "verifying" }))).toBe(
    "verifying · 99 %",
  );
  expect(
    progressWords(
      node({ status: "downloading", phase: "downloading", bytes_done: 3 << 20, rate_bytes_per_s: 1 << 20 }),
    ),
  ).toBe("3.0 MiB · 1.0 MiB/s");
  expect(progressWords(node({ status: "downloading", phase: "resolving" }))).toBe("resolving · 0 %");
  expect(progressWords(node({ status: "success", percentage: 100 }))).toBe("");
});

test("only an install or an upgrade is shown as downloading", () => {
  const words = ["install", "upgrade", "rollback", "delete"].map((verb) => pillOf("downloading", verb).word);
  expect(words).toEqual(["Downloading", "Downloading", "Rolling back", "Deleting"]);
  expect(pillOf("success", "delete").word).toBe("Done");
});

test("explains an unconfirmed change by its verb", () => {
  expect(unconfirmedText("delete")).toBe(
    "The worker has not replied yet. Corral will keep checking; the delete is not started twice.",
  );
});
