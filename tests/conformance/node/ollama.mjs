// Ollama's own JavaScript client, as its users have it: URL KEY MODEL FEATURE... The same checks as ollama_client.py.

import assert from "node:assert/strict";
import { Ollama } from "ollama";

const [url, key, model, ...features] = process.argv.slice(2);
const client = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });
const messages = [{ role: "user", content: "Name one colour of a horse." }];
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const few = { num_predict: 16, temperature: 0 };

const names = (listed) => listed.models.map((item) => item.model);

async function collect(stream) {
  const parts = [];
  for await (const part of await stream) parts.push(part);
  return parts;
}

async function fails(status, request) {
  try {
    await request();
  } catch (error) {
    assert.equal(error.status_code, status, `${error}`);
    return error;
  }
  assert.fail(`no status ${status}`);
}

const checks = {
  chat: {
    async models_are_listed_and_shown() {
      assert.ok(names(await client.list()).includes(model));
      assert.ok((await client.show({ model })).capabilities.length);
      assert.match((await client.version()).version, /^\d+\.\d+/);
    },
    async chat_is_answered() {
      const answer = await client.chat({ model, messages, options: few, keep_alive: "5m" });
      assert.ok(answer.message.content);
      assert.ok(answer.done && ["stop", "length"].includes(answer.done_reason));
      assert.ok(answer.eval_count > 0 && answer.total_duration > 0);
    },
    async chat_is_streamed() {
      const parts = await collect(client.chat({ model, messages, options: few, stream: true }));
      assert.ok(parts.map((part) => part.message.content).join(""));
      assert.deepEqual(
        parts.map((part) => part.done),
        [...Array(parts.length - 1).fill(false), true],
      );
    },
    async text_is_generated() {
      assert.ok((await client.generate({ model, prompt: "A horse is", options: few })).response);
      assert.equal((await client.generate({ model, prompt: "" })).done_reason, "load");
      assert.ok(names(await client.ps()).includes(model));
    },
    async an_unknown_model_is_not_found() {
      await fails(404, () => client.chat({ model: `${model}x`, messages }));
    },
  },
  tools: {
    async tools_are_called() {
      const asked = { model, messages: [{ role: "user", content: "tool" }], tools };
      const [called] = (await client.chat(asked)).message.tool_calls;
      assert.deepEqual([called.function.name, called.function.arguments], ["weather", { city: "Paris" }]);
      const parts = await collect(client.chat({ ...asked, stream: true }));
      const streamed = parts.flatMap((part) => part.message.tool_calls ?? []);
      assert.deepEqual(
        streamed.map((one) => one.function.name),
        ["weather"],
      );
    },
  },
  embeddings: {
    async texts_are_embedded() {
      const { embeddings } = await client.embed({ model, input: ["abc", "abcde"] });
      assert.deepEqual(
        embeddings.map(([first]) => first),
        [3, 5],
      );
    },
  },
  vision: {
    async images_are_sent() {
      const asked = [{ role: "user", content: "Look.", images: [PNG] }];
      const answer = await client.chat({ model, messages: asked });
      assert.ok(answer.message.content.includes(`data:image/png;base64,${PNG}`));
    },
  },
  structured: {
    async a_schema_is_kept() {
      const colours = ["bay", "grey"];
      const format = { type: "object", properties: { colour: { enum: colours } }, required: ["colour"] };
      const answer = await client.chat({ model, messages, format, options: { num_predict: 64, temperature: 0 } });
      assert.ok(colours.includes(JSON.parse(answer.message.content).colour));
    },
  },
  pull: {
    async models_are_pulled_and_deleted() {
      const steps = await collect(client.pull({ model, stream: true }));
      assert.equal(steps.at(-1).status, "success");
      assert.equal((await client.pull({ model: `${model}:latest` })).status, "success");
      assert.ok(names(await client.ps()).includes(model));
      assert.equal((await client.delete({ model })).status, "success");
      assert.ok(!names(await client.list()).includes(model));
      for (const request of [() => client.delete({ model: "none-such" }), () => client.pull({ model: "none-such" })]) {
        assert.ok((await fails(404, request)).message.includes("none-such"));
      }
    },
  },
};

for (const feature of features) {
  for (const [name, run] of Object.entries(checks[feature])) {
    await run();
    console.log("ok", name);
  }
}
process.exit(0);
