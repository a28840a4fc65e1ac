import { expect, test } from "vitest";
import type { Scheduling } from "@/api/types";
import {
  changeLines,
  footprintWords,
  pendingWords,
  restoreWords,
  restWords,
  schedulingWords,
  unloadWords,
  unloadWordsOnNode,
  whichFile,
} from "./states";

const scheduling = (fields: Partial<Scheduling>) => ({ min_replicas: 0, max_replicas: 0, ...fields }) as Scheduling;

test("shows which of several files is being downloaded", () => {
  expect(whichFile({ state: "staging", file_index: 2, total_files: 5 })).toBe("file 2 of 5");
  expect(whichFile({ state: "staging", file_index: 1, total_files: 1 })).toBe("");
  expect(whichFile({ state: "loading", file_index: 5, total_files: 5 })).toBe("");
});

test("describes the scheduling", () => {
  expect(schedulingWords(undefined)).toBe("on demand (scales to zero)");
  expect(schedulingWords(scheduling({ min_replicas: 2, max_replicas: 2 }))).toBe("2 replicas");
  expect(schedulingWords(scheduling({ min_replicas: 1, max_replicas: 3, node_selector: '{"tier":"fast"}' }))).toBe(
    "1 to 3 replicas on nodes with tier=fast",
  );
  expect(schedulingWords(scheduling({ min_replicas: 1 }))).toBe("at least 1 replica");
  expect(schedulingWords(scheduling({ spread_all: true, node_selector: '{"tier":"fast"}' }))).toBe(
    "on every node with tier=fast",
  );
});

test("shows how many replicas are ready while they are fewer than desired", () => {
  expect(schedulingWords(scheduling({ min_replicas: 2, max_replicas: 2 }), 1)).toBe("1 of 2 replicas");
  expect(schedulingWords(scheduling({ min_replicas: 2, max_replicas: 2 }), 2)).toBe("2 replicas");
  expect(schedulingWords(scheduling({ min_replicas: 1, max_replicas: 1, node_selector: '{"tier":"fast"}' }), 0)).toBe(
    "0 of 1 replica on nodes with tier=fast",
  );
  expect(schedulingWords(scheduling({ min_replicas: 2, max_replicas: 3 }), 1)).toBe("1 of at least 2 replicas");
  expect(schedulingWords(scheduling({ max_replicas: 2 }), 0)).toBe("0 to 2 replicas");
  expect(schedulingWords(scheduling({ spread_all: true }), 0)).toBe("on every node");
});

test("shows what missing replicas are waiting for, or why they failed", () => {
  const two = scheduling({ min_replicas: 2, max_replicas: 2 });
  expect(restWords(two, 1, { waits: "no node can take it", failed: "" })).toBe(
    "1 of 2 replicas; the other is waiting: no node can take it",
  );
  expect(restWords(two, 1, { waits: "no node can take it", failed: "no such file" })).toBe(
    "1 of 2 replicas; the other failed: no such file",
  );
  expect(restWords(scheduling({ min_replicas: 3, max_replicas: 3 }), 1, { waits: "no capacity", failed: "" })).toBe(
    "1 of 3 replicas; the others are waiting: no capacity",
  );
  expect(restWords(two, 1, { waits: "", failed: "" })).toBe("");
  expect(restWords(two, 2, { waits: "no capacity", failed: "" })).toBe("2 replicas; another is waiting: no capacity");
  expect(restWords(scheduling({ spread_all: true }), 1, { waits: "no capacity", failed: "" })).toBe(
    "1 replica; another is waiting: no capacity",
  );
  expect(restWords(two, 0, { waits: "no capacity", failed: "" })).toBe("");
  expect(restWords(undefined, 1, { waits: "", failed: "no such file" })).toBe(
    "1 replica; another failed: no such file",
  );
});

test("describes what unloading does, and when Corral would load the model again", () => {
  expect(unloadWords(1, 0)).toBe(
    "1 replica stops after its current requests finish. The configuration is kept; the next request loads the model again.",
  );
  expect(unloadWords(0, 1)).toBe(
    "Loads in progress are cancelled. The configuration is kept; the next request loads the model again.",
  );
  expect(unloadWordsOnNode(1, 2, scheduling({ max_replicas: 3 }))).toContain("Requests go to 2 other replicas.");
  expect(unloadWordsOnNode(1, 0, undefined)).toContain("the next request loads the model again");
  expect(unloadWordsOnNode(2, 1, scheduling({ min_replicas: 3, max_replicas: 3 }))).toBe(
    "The 2 replicas on this node stop after their current requests finish. Its scaling is “3 replicas”, so Corral starts another replica on this or another node.",
  );
  expect(unloadWordsOnNode(1, 2, scheduling({ min_replicas: 2 }))).toContain("Requests go to 2 other replicas.");
});

test("shows the measured memory use of a replica, or that there is none yet", () => {
  expect(footprintWords({ cpu: 369 * 2 ** 20, nvidia: 3 * 2 ** 30 })).toBe("369 MiB on CPU, 3.0 GiB on NVIDIA GPU");
  expect(footprintWords({})).toBe("not measured yet");
});

test("shows why the newest configuration does not serve yet", () => {
  const pending = { revision: "b", number: 2, serving: "a", serving_number: 1, reason: "", failures: 0, held: false };
  expect(pendingWords(pending)).toBe("It is being loaded and tried.");
  expect(pendingWords({ ...pending, reason: "w1 could not start it: no such file" })).toBe(
    "w1 could not start it: no such file.",
  );
  expect(pendingWords({ ...pending, reason: "no capacity", held: true })).toContain("It is not retried automatically");
});

test("a change shows the value that is gone and the one that is new", () => {
  expect(
    changeLines([
      { field: "threads", before: "2", after: "3" },
      { field: "stopwords", before: null, after: '["x"]' },
      { field: "f16", before: "true", after: null },
    ]),
  ).toBe('- threads: 2\n+ threads: 3\n+ stopwords: ["x"]\n- f16: true');
});

test("only a revision that was never ready names the one to restore", () => {
  expect(restoreWords(3, null)).toBe("");
  expect(restoreWords(3, undefined)).toBe("");
  expect(restoreWords(3, 2)).toContain("Roll back to revision 2");
});
