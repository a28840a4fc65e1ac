import { expect, test } from "vitest";
import { parseTier, parseTiers, tierText, tierWords } from "./routeTiers";

test("a tier is typed as on the command line", () => {
  expect(parseTier(" qwen=3, llama ,")).toEqual([
    { model: "qwen", weight: 3 },
    { model: "llama", weight: 1 },
  ]);
  expect(parseTier(" , ")).toEqual([]);
  expect(tierText(parseTier("qwen=3,llama=1"))).toBe("qwen=3, llama");
});

test("a name keeps what is no weight, and the server says what is wrong with it", () => {
  expect(parseTier("qwen=x")).toEqual([{ model: "qwen=x", weight: 1 }]);
});

test("fallbacks that are left empty are left out", () => {
  expect(parseTiers(["a", "", "b"])).toEqual([[{ model: "a", weight: 1 }], [{ model: "b", weight: 1 }]]);
});

test("tiers are named by their order", () => {
  expect([tierWords(0, 1), tierWords(0, 2), tierWords(1, 2), tierWords(2, 3)]).toEqual([
    "Leads to",
    "First",
    "Fallback",
    "Fallback 2",
  ]);
});
