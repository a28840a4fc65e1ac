import { expect, test } from "vitest";
import { deletionWords } from "./deletion";

const use = (model: string, replicas: number) => ({ model, replicas });

test("lists the models that stop first, then other models that use the backend", () => {
  expect(deletionWords("llama-cpp", [use("smollm2", 2), use("ta", 0), use("tb", 0), use("tiny", 0)], false)).toEqual({
    stops: ["Stops 2 replicas of smollm2."],
    notes: [
      "Also used by ta, tb and tiny, which are not running there now.",
      "Stopped models load again after llama-cpp is reinstalled.",
    ],
  });
  expect(deletionWords("x", [use("a", 1), use("b", 3)], false).stops).toEqual([
    "Stops 1 replica of a.",
    "Stops 3 replicas of b.",
  ]);
});

test("does not mention loading again when nothing stops", () => {
  expect(deletionWords("x", [use("ta", 0)], false)).toEqual({
    stops: [],
    notes: ["Used by ta, which is not running there now."],
  });
  expect(deletionWords("x", [], false)).toEqual({ stops: [], notes: [] });
});

test("a delete on all nodes includes nodes that join later", () => {
  expect(deletionWords("x", [], true).notes).toEqual(["Nodes that join later do not get it."]);
});
