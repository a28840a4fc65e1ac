import { expect, test } from "vitest";
import type { Preview } from "@/api/types";
import { previewWords } from "./preview";

const node = (name: string, changes: Partial<Preview["waves"][number][number]> = {}) => ({
  node_id: name,
  node_name: name,
  from_build: "cpu-echo",
  from_version: "1.0",
  to_build: "cpu-echo",
  to_version: "1.1",
  method: "rolling",
  reason: "memory holds both versions",
  ...changes,
});

const preview = (changes: Partial<Preview> = {}): Preview => ({
  backend: "echo",
  strategy: "waves",
  soak_s: 60,
  waves: [[node("a")], [node("b", { to_build: "cuda-echo", method: "stop-first", reason: "memory holds one" })]],
  other_nodes: [],
  skipped: [{ node_name: "c", reason: "pinned to 1.0" }],
  ...changes,
});

test("waves, versions, ways and what is skipped are told", () => {
  expect(previewWords(preview())).toEqual({
    title: "Strategy waves, 2 waves, each watched for 60 s.",
    waves: [
      { name: "Wave 1", nodes: ["a, 1.0 → 1.1 (rolling, memory holds both versions)"] },
      { name: "Wave 2", nodes: ["b, cpu-echo 1.0 → cuda-echo 1.1 (stop-first, memory holds one)"] },
    ],
    notes: [
      "Models on b are interrupted: the old version stops before the new one starts.",
      "c is skipped: pinned to 1.0",
    ],
  });
});

test("an upgrade that changes nothing says so", () => {
  expect(previewWords(preview({ strategy: "", waves: [], skipped: [] })).title).toBe("No node changes its version.");
});
