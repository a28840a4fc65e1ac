import { expect, test } from "vitest";
import { asCurl, asPython } from "./examples";
import { chatModels } from "./chatModels";
import { buildRequest, type Turn } from "./useChat";

const parameters = { system: "Be brief.", temperature: "0.5", topP: "", maxTokens: "many" };

test("sends the conversation, and only parameters that are numbers", () => {
  const answer = {
    text: "",
    reasoning: "",
    node: "",
    tokens: 0,
    tokensAreCounted: false,
    firstMs: null,
    endedMs: 1,
    error: new Error("x"),
    stopped: false,
  };
  const turns: Turn[] = [
    { role: "user", text: "hello" },
    { role: "assistant", answer },
    { role: "user", text: "again" },
  ];
  expect(buildRequest("m", turns, parameters)).toEqual({
    model: "m",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "hello" },
      { role: "user", content: "again" },
    ],
    temperature: 0.5,
  });
});

test("escapes text for a shell and for Python", () => {
  const request = { model: "m", messages: [{ role: "user" as const, content: 'it\'s "so"' }], max_tokens: 5 };
  expect(asCurl("http://h/", request)).toContain("it'\\''s");
  expect(asPython("http://h/", request)).toContain('"content": "it\'s \\"so\\""');
  expect(asPython("http://h/", request)).toContain("    max_tokens=5,\n");
});

test("an alias can chat when the model it stands for can", () => {
  const plain = { alias_of: "", disabled: false, embeddings: false };
  const models = [
    { ...plain, name: "big" },
    { ...plain, name: "gpt-4", alias_of: "big" },
    { ...plain, name: "off", disabled: true },
    { ...plain, name: "off-too", alias_of: "off" },
    { ...plain, name: "vectors", embeddings: true },
    { ...plain, name: "ada", alias_of: "vectors" },
  ];
  expect([...chatModels(models)]).toEqual([
    ["big", "big"],
    ["gpt-4", "big"],
  ]);
});
