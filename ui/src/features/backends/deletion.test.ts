import { expect, test } from "vitest";
import { deletionWords } from "./deletion";

const use = (model: string, replicas: number) => ({ model, replicas });

test("says first what stops, then who else uses it", () => {
  expect(deletionWords("llama-cpp", [use("smollm2", 2), use("ta", 0), use("tb", 0), use("tiny", 0)], false)).toEqual({
    stops: ["Stops 2 replicas of smollm2."],
    notes: [
      "Also used by ta, tb and tiny, which do not run there now.",
      "They come back when llama-cpp is installed again.",
    ],
  });
  expect(deletionWords("x", [use("a", 1), use("b", 3)], false).stops).toEqual([
    "Stops 1 replica of a.",
    "Stops 3 replicas of b.",
  ]);
});

test("promises nothing back where nothing stops", () => {
  expect(deletionWords("x", [use("ta", 0)], false)).toEqual({
    stops: [],
    notes: ["Used by ta, which does not run there now."],
  });
  expect(deletionWords("x", [], false)).toEqual({ stops: [], notes: [] });
});

test("everywhere means machines to come as well", () => {
  expect(deletionWords("x", [], true).notes).toEqual(["Machines that join later do not get it either."]);
});
