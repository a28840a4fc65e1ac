import { expect, test } from "vitest";
import type { Load, ReplicaState } from "@/api/types";
import { failureCauses, modelState } from "./modelState";

const replica = (corral_state: ReplicaState, reason = "") => ({ corral_state, reason });
const failed: Pick<Load, "state" | "error"> = { state: "failed", error: "no such file" };
const waiting: Pick<Load, "state" | "reason"> = { state: "pending", reason: "no node has capacity" };
const wordOf = (...of: Parameters<typeof modelState>) => modelState(...of).word;

test("a ready replica counts before a load or a failure", () => {
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
  expect(wordOf([replica("offline"), replica("failed")], [])).toBe("Failed");
  expect(wordOf([replica("offline")], [])).toBe("Not reachable");
  expect(wordOf([], [])).toBe("Not loaded");
});

test("a failed load is a failure even without a failed replica", () => {
  expect(modelState([], [failed])).toEqual({ word: "Failed", label: "Failed", tone: "red", ready: 0 });
  expect(wordOf([], [waiting, failed])).toBe("Failed");
  expect(wordOf([], [waiting])).toBe("Waiting");
});

test("a model is unknown until its replicas and loads are known", () => {
  expect(wordOf(undefined, [])).toBe("Unknown");
  expect(wordOf([], undefined)).toBe("Unknown");
  expect(wordOf([replica("ready")], undefined)).toBe("Ready");
});

test("each cause of a failure is listed once", () => {
  expect(
    failureCauses([replica("failed", "the process died"), replica("ready", "fine")], [failed, failed, {}]),
  ).toEqual(["no such file", "the process died"]);
  expect(failureCauses([], [])).toEqual([]);
});
