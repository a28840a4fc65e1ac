import { expect, test } from "vitest";
import type { ReplicaState } from "@/api/types";
import { failureCauses, modelState } from "./modelState";

const replica = (corral_state: ReplicaState, reason = "") => ({ corral_state, reason });
const failed = { state: "failed", error: "no such file" };
const waiting = { state: "pending", reason: "no node has room" };
const wordOf = (...of: Parameters<typeof modelState>) => modelState(...of).word;

test("says what serves before what comes or failed", () => {
  expect(modelState([replica("ready"), replica("ready"), replica("failed")], [failed])).toEqual({
    word: "Ready",
    label: "Ready ×2",
    tone: "green",
    ready: 2,
  });
  expect(wordOf([replica("loading"), replica("failed")], [])).toBe("Loading");
  expect(wordOf([], [{ state: "staging" }, failed])).toBe("Loading");
  expect(wordOf([], [{ state: "pending" }])).toBe("Loading");
  expect(wordOf([replica("failed")], [])).toBe("Failed");
  expect(wordOf([], [])).toBe("Not loaded");
});

test("a load that failed is a failure though no replica tells of it", () => {
  expect(modelState([], [failed])).toEqual({ word: "Failed", label: "Failed", tone: "red", ready: 0 });
  expect(wordOf([], [waiting, failed])).toBe("Failed");
  expect(wordOf([], [waiting])).toBe("Waiting");
});

test("does not call a model not loaded before it is known what runs", () => {
  expect(wordOf(undefined, [])).toBe("Unknown");
  expect(wordOf([], undefined)).toBe("Unknown");
  expect(wordOf([replica("ready")], undefined)).toBe("Ready");
});

test("causes of a failure are told once each", () => {
  expect(
    failureCauses([replica("failed", "the process died"), replica("ready", "fine")], [failed, failed, {}]),
  ).toEqual(["no such file", "the process died"]);
  expect(failureCauses([], [])).toEqual([]);
});
