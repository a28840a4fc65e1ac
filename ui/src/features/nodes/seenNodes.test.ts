import { describe, expect, test } from "vitest";
import type { Node } from "@/api/types";
import { capabilityLine, gpuLines, gpuMemoryKind } from "./hardware";
import { machineLabels } from "./labels";
import { applyEvents, received } from "@/data/nodes";
import { lastSeenAgeS, matchesText, viewRoster, type RosterView } from "./seenNodes";
import { actionsFor, countByStatus, reasonFor } from "./status";

const GIB = 2 ** 30;

function node(over: Partial<Node> & { name: string }): Node {
  return {
    id: `id-${over.name}`,
    node_type: "backend",
    address: "10.0.0.5:50051",
    http_address: "10.0.0.5:50050",
    status: "healthy",
    state: "healthy",
    reachable: true,
    conditions: [],
    refused: null,
    status_reason: "",
    approved: true,
    draining: false,
    drain_requested: false,
    conflict: null,
    claims: [],
    last_seen_age_s: 3,
    last_heartbeat: "2026-08-01T10:00:00Z",
    created_at: "2026-08-01T09:00:00Z",
    updated_at: "2026-08-01T10:00:00Z",
    version: "0.1.0",
    platform: "linux/amd64",
    cpu_model: "EPYC 7543",
    cpu_count: 64,
    gpus: [],
    gpu_vendor: null,
    gpu_compute_capability: null,
    capability: null,
    capability_reason: null,
    isolation: null,
    isolation_reason: null,
    problems: [],
    total_vram: null,
    available_vram: null,
    reserved_vram: 0,
    total_ram: 64 * GIB,
    available_ram: 32 * GIB,
    total_disk: 100 * GIB,
    available_disk: 50 * GIB,
    max_replicas_per_model: 1,
    max_replicas_per_model_manually_set: false,
    vram_budget: null,
    vram_budget_bytes: null,
    vram_budget_manually_set: false,
    epoch: 1,
    model_count: 0,
    in_flight_count: 0,
    labels: {},
    worker_labels: {},
    operator_labels: {},
    ...over,
  };
}

const VIEW: RosterView = { text: "", statuses: [], sort: "name", descending: false };
const names = (nodes: readonly Node[]) => nodes.map(({ name }) => name);

describe("events", () => {
  const roster = received([node({ name: "a" }), node({ name: "b" })], 1000);

  test("change, add and remove nodes", () => {
    const after = applyEvents(
      roster,
      [{ changed: [node({ name: "b", state: "offline" }), node({ name: "c" })], removed: ["id-a"] }],
      2000,
    );
    expect(after.map(({ name, state }) => [name, state])).toEqual([
      ["b", "offline"],
      ["c", "healthy"],
    ]);
  });

  test("that are older than what is shown are left out", () => {
    const late = node({ name: "a", state: "pending", updated_at: "2026-08-01T09:59:59Z" });
    expect(applyEvents(roster, [{ changed: [late], removed: [] }], 2000)[0]?.state).toBe("healthy");
  });

  test("leave nodes they do not name as they were", () => {
    expect(applyEvents(roster, [{ changed: [node({ name: "b" })], removed: [] }], 2000)[0]).toBe(roster[0]);
  });
});

describe("last seen", () => {
  test("counts on from the server's figure, independent of the local clock", () => {
    const seen = { ...node({ name: "a", last_seen_age_s: 3 }), received_at_ms: 10_000 };
    expect(lastSeenAgeS(seen, 14_000)).toBe(7);
    expect(lastSeenAgeS(seen, 9_000)).toBe(3);
  });

  test("stays never for a node that was never heard from", () => {
    const unseen = { ...node({ name: "a", last_seen_age_s: null }), received_at_ms: 0 };
    expect(lastSeenAgeS(unseen, 60_000)).toBeNull();
  });
});

describe("the view", () => {
  const roster = received(
    [
      node({ name: "node-10", state: "offline", labels: { tier: "fast" }, available_disk: 10 * GIB }),
      node({ name: "node-9", state: "pending", approved: false, total_disk: null, available_disk: null }),
      node({
        name: "node-2",
        gpus: [
          { name: "L40S", vendor: "nvidia", memory_total_bytes: 48 * GIB, memory_free_bytes: null, unified: false },
        ],
      }),
    ],
    0,
  );

  test("sorts names the way people count", () => {
    expect(names(viewRoster(roster, VIEW))).toEqual(["node-2", "node-9", "node-10"]);
  });

  test("puts what wants attention first when sorted by status", () => {
    expect(names(viewRoster(roster, { ...VIEW, sort: "status" }))).toEqual(["node-9", "node-10", "node-2"]);
  });

  test.each([false, true])("puts unknown disks last, descending or not (%s)", (descending) => {
    expect(viewRoster(roster, { ...VIEW, sort: "disk", descending }).at(-1)?.name).toBe("node-9");
  });

  test("filters by any of several statuses", () => {
    expect(names(viewRoster(roster, { ...VIEW, statuses: ["offline", "pending"] }))).toEqual(["node-9", "node-10"]);
  });

  test.each([
    ["tier=fast", ["node-10"]],
    ["NVIDIA l40", ["node-2"]],
    ["nvidia fast", []],
    ["  ", ["node-2", "node-9", "node-10"]],
  ])("finds %j in %j", (text, expected) => {
    expect(names(viewRoster(roster, { ...VIEW, text }))).toEqual(expected);
  });

  test("handles a thousand nodes within a frame or two", () => {
    const many = received(
      Array.from({ length: 1000 }, (_, i) => node({ name: `node-${i}` })),
      0,
    );
    expect(viewRoster(many, { ...VIEW, text: "node-99" })).toHaveLength(11);
    expect(many.some((each) => matchesText(each, "absent"))).toBe(false);
  });
});

describe("status", () => {
  test("counts every status, also those without nodes", () => {
    expect(countByStatus([node({ name: "a" }), node({ name: "b", state: "pending" })])).toEqual({
      healthy: 1,
      pending: 1,
      unhealthy: 0,
      offline: 0,
      joining: 0,
      draining: 0,
    });
  });

  test("shows the reason from the server before a general one", () => {
    expect(reasonFor(node({ name: "a", state: "unhealthy", status_reason: "no answer on the bus for 31 s" }))).toBe(
      "No answer on the bus for 31 s",
    );
    expect(reasonFor(node({ name: "a", state: "pending" }))).toBe("Waiting for approval");
  });

  test("offers the right actions: an offline draining node can still be resumed", () => {
    expect(actionsFor(node({ name: "a", approved: false, state: "offline" }))).toEqual(["approve", "labels", "remove"]);
    expect(actionsFor(node({ name: "a" }))).toEqual(["drain", "labels", "remove"]);
    expect(actionsFor(node({ name: "a", state: "offline", draining: true }))).toEqual(["resume", "labels", "remove"]);
  });
});

test("detected labels are separate from those that were set", () => {
  const labels = { tier: "fast", rack: "7", "node.name": "a" };
  expect(
    machineLabels(node({ name: "a", labels, operator_labels: { tier: "fast" }, worker_labels: { rack: "7" } })),
  ).toEqual({ "node.name": "a" });
});

describe("hardware", () => {
  const gpu = {
    name: "NVIDIA L40S",
    vendor: "nvidia",
    memory_total_bytes: 48 * GIB,
    memory_free_bytes: 40 * GIB,
    unified: false,
  };

  test("counts equal GPUs and does not repeat the vendor", () => {
    expect(gpuLines(node({ name: "a", gpus: [gpu, gpu, { ...gpu, name: "MI300X", vendor: "amd" }] }))).toEqual([
      "2 × NVIDIA L40S",
      "AMD MI300X",
    ]);
  });

  test("falls back to the vendor that a LocalAI worker reports, and takes `unknown` for no answer", () => {
    expect(gpuLines(node({ name: "a", gpu_vendor: "amd" }))).toEqual(["AMD GPU"]);
    expect(gpuLines(node({ name: "a", gpu_vendor: "unknown" }))).toEqual([]);
  });

  test("knows shared memory from the GPU's own", () => {
    expect(gpuMemoryKind(node({ name: "a", gpus: [{ ...gpu, unified: true }] }))).toBe("shared");
    expect(gpuMemoryKind(node({ name: "a", gpus: [gpu] }))).toBe("own");
    expect(gpuMemoryKind(node({ name: "a" }))).toBe("none");
  });

  test("names the capability a backend build is chosen by", () => {
    expect(capabilityLine(node({ name: "a", capability: "nvidia-cuda-12", gpu_compute_capability: "8.9" }))).toBe(
      "nvidia-cuda-12 · cc 8.9",
    );
    expect(capabilityLine(node({ name: "a", capability: null }))).toBe("");
  });
});
