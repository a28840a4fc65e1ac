// Anthropic's own Node client, as its users have it: URL KEY MODEL FEATURE... The same checks as anthropic_client.py.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const [url, key, model, ...features] = process.argv.slice(2);
const options = { baseURL: url, timeout: 120_000, maxRetries: 0 };
const client = new Anthropic({ ...options, apiKey: key });
const HORSE = [{ role: "user", content: "Name one colour of a horse." }];
const TOOL = [{ role: "user", content: "tool" }];
const TOOLS = [{ name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async function fails(kind, request) {
  try {
    await request();
  } catch (error) {
    assert.ok(error instanceof kind, `${error}`);
    assert.equal(error.error.type, "error");
    return;
  }
  assert.fail(`no ${kind.name}`);
}

const checks = {
  messages: {
    async models_are_listed() {
      const found = [];
      for await (const item of client.models.list()) found.push(item.id);
      assert.ok(found.includes(model), `${found}`);
      assert.equal((await client.models.retrieve(model)).id, model);
    },
    async a_message_is_answered() {
      const answer = await client.messages.create({ model, messages: HORSE, max_tokens: 16, system: "Be brief." });
      assert.deepEqual([answer.type, answer.role, answer.model], ["message", "assistant", model]);
      assert.ok(answer.content[0].text);
      assert.ok(["end_turn", "max_tokens"].includes(answer.stop_reason));
      assert.ok(answer.usage.input_tokens > 0 && answer.usage.output_tokens > 0);
    },
    async a_message_is_streamed() {
      let text = "";
      const stream = client.messages.stream({ model, messages: HORSE, max_tokens: 16 });
      stream.on("text", (piece) => (text += piece));
      const final = await stream.finalMessage();
      assert.ok(text);
      assert.equal(final.content[0].text, text);
      assert.ok(final.usage.output_tokens > 0);
    },
    async tokens_are_counted() {
      assert.ok((await client.messages.countTokens({ model, messages: HORSE })).input_tokens > 0);
    },
    async wrong_input_and_keys_are_refused() {
      const stranger = new Anthropic({ ...options, apiKey: "wrong" });
      const few = { messages: HORSE, max_tokens: 1 };
      await fails(Anthropic.NotFoundError, () => client.messages.create({ model: `${model}x`, ...few }));
      await fails(Anthropic.BadRequestError, () => client.messages.create({ model, max_tokens: 1 }));
      await fails(Anthropic.AuthenticationError, () => stranger.messages.create({ model, ...few }));
    },
  },
  tools: {
    async tools_are_called() {
      const common = { model, max_tokens: 16, tools: TOOLS };
      const answer = await client.messages.create({ ...common, messages: TOOL });
      const call = answer.content.at(-1);
      assert.equal(answer.stop_reason, "tool_use");
      assert.deepEqual([call.type, call.name, call.input], ["tool_use", "weather", { city: "Paris" }]);
      const streamed = await client.messages.stream({ ...common, messages: TOOL }).finalMessage();
      assert.deepEqual(streamed.content.at(-1).input, { city: "Paris" });
      const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
      const asked = { role: "assistant", content: answer.content };
      const messages = [...TOOL, asked, { role: "user", content: [result] }];
      assert.ok((await client.messages.create({ ...common, messages })).content[0].text.includes("sunny"));
    },
  },
  vision: {
    async images_are_sent() {
      const source = { type: "base64", media_type: "image/png", data: PNG };
      const content = [
        { type: "image", source },
        { type: "text", text: "Look." },
      ];
      const answer = await client.messages.create({ model, messages: [{ role: "user", content }], max_tokens: 16 });
      assert.ok(answer.content[0].text.includes(`data:image/png;base64,${PNG}`));
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
