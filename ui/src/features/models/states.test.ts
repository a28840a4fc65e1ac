import { expect, test } from "vitest";
import type { Replica, Scheduling } from "@/api/types";
import { modelState, schedulingWords, whichFile } from "./states";

const replica = (corral_state: string) => ({ corral_state }) as Replica;
const scheduling = (fields: Partial<Scheduling>) => ({ model_name: "m", min_replicas: 0, max_replicas: 0, ...fields }) as Scheduling;

test("says what serves before what comes or failed", () => {
  expect(modelState([replica("ready"), replica("failed")], false).word).toBe("Ready");
  expect(modelState([replica("loading"), replica("failed")], false).word).toBe("Loading");
  expect(modelState([], true).word).toBe("Loading");
  expect(modelState([replica("failed")], false).word).toBe("Failed");
  expect(modelState([], false).word).toBe("Not loaded");
});

test("says which of several files is on its way", () => {
  expect(whichFile({ state: "staging", file_index: 2, total_files: 5 })).toBe("file 2 of 5");
  expect(whichFile({ state: "staging", file_index: 1, total_files: 1 })).toBe("");
  expect(whichFile({ state: "loading", file_index: 5, total_files: 5 })).toBe("");
});

test("puts the scheduling into words", () => {
  expect(schedulingWords(undefined)).toBe("loaded when it is first asked for");
  expect(schedulingWords(scheduling({ min_replicas: 2, max_replicas: 2 }))).toBe("2 replicas");
  expect(schedulingWords(scheduling({ min_replicas: 1, max_replicas: 3, node_selector: '{"tier":"fast"}' }))).toBe("1 to 3 replicas on nodes with tier=fast");
  expect(schedulingWords(scheduling({ min_replicas: 1 }))).toBe("at least 1");
  expect(schedulingWords(scheduling({ spread_all: true, node_selector: '{"tier":"fast"}' }))).toBe("on every node with tier=fast");
});
