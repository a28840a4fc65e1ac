import { expect, test } from "vitest";
import type { GateVerdict, Rollout, RolloutWave } from "@/api/types";
import { actionsOf, failedFirst, figure, methodWords, progressWords, shownState, versionsOf, waveNote } from "./words";

const verdict = (gate: string, outcome: GateVerdict["outcome"]) => ({ gate, outcome }) as GateVerdict;

test.each([
  ["running", ["pause", "promote", "abort"]],
  ["awaiting_promotion", ["promote", "pause", "abort"]],
  ["paused", ["resume", "promote", "abort"]],
  ["rolling_back", []],
  ["completed", []],
  ["failed", []],
  ["aborted", []],
] as const)("a rollout that is %s offers %j", (state, expected) => {
  const rollout = { state, strategy: "waves", held_back: false } as const;
  expect(actionsOf(rollout).map(({ action }) => action)).toEqual(expected);
  expect(actionsOf({ ...rollout, strategy: "all" })).toEqual([]);
});

test("a version that is held back can be allowed again", () => {
  const failed = { state: "failed", strategy: "waves", held_back: true } as const;
  expect(actionsOf(failed).map(({ action }) => action)).toEqual(["allow"]);
});

test.each([
  ["errors", 0.021, "2.1 %"],
  ["first_token", 181.6, "182 ms"],
  ["throughput", 19.44, "19.4 /s"],
  ["memory", 3 * 2 ** 30, "3.0 GiB"],
  ["stable", 1, "1 exit"],
  ["throughput", null, "–"],
  ["memory", undefined, "–"],
] as const)("the figure of %s is shown in its own unit", (gate, value, expected) => {
  expect(figure({ gate }, value)).toBe(expected);
});

test.each([
  ["rolling", "", "rolling (planned)"],
  ["rolling", "stop-first", "stop-first"],
  ["", "rolling", "rolling"],
  ["", "", "no replicas"],
])("a planned method %j of which %j was seen is shown as %j", (method, used_method, expected) => {
  expect(methodWords({ method, used_method })).toBe(expected);
});

test("failed gates come first, the others keep their order", () => {
  const gates = [verdict("stable", "passed"), verdict("errors", "unjudged"), verdict("throughput", "failed")];
  expect(failedFirst(gates).map(({ gate }) => gate)).toEqual(["throughput", "stable", "errors"]);
});

test("builds that change alike are named once", () => {
  const change = { previous_version: "1.0", version: "2.0" };
  const versions = [change, change, { previous_version: "", version: "2.0" }] as Rollout["versions"];
  expect(versionsOf({ versions })).toBe("1.0 → 2.0, unknown → 2.0");
});

test("progress counts nodes, and open states are one filter", () => {
  const waves = [{ nodes: [{ state: "done" }] }, { nodes: [{ state: "waiting" }, { state: "waiting" }] }];
  expect(progressWords({ waves: waves as RolloutWave[] })).toBe("1 of 3 nodes has the new version");
  expect(shownState({ state: "awaiting_promotion" })).toBe("open");
  expect(shownState({ state: "failed" })).toBe("failed");
});

test("a watched wave tells how long its gates are still judged", () => {
  const wave = { state: "soaking", soak_ends_at: "2026-01-01T00:01:00Z" } as RolloutWave;
  const at = (seconds: number) => Date.parse("2026-01-01T00:00:00Z") + seconds * 1000;
  expect(waveNote(wave, at(20))).toBe("gates are judged for another 40 s");
  expect(waveNote(wave, at(70))).toBe("the last gates are being judged");
  expect(waveNote({ ...wave, state: "passed" }, at(0))).toBe("");
});
