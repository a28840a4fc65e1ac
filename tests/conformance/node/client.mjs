// OpenAI's own Node client, as its users have it: URL KEY MODEL FEATURE... The same checks as client.py.

import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, key, model, ...features] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, timeout: 120_000, maxRetries: 0 });
const HORSE = [{ role: "user", content: "Name one colour of a horse." }];
const TOOLS = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async function fails(kind, request) {
  try {
    await request();
  } catch (error) {
    assert.ok(error instanceof kind, `${error}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

async function read(stream) {
  const found = { text: "", reasons: [], usage: null };
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    found.usage = chunk.usage ?? found.usage;
    for (const choice of chunk.choices) {
      found.text += choice.delta.content ?? "";
      if (choice.finish_reason) found.reasons.push(choice.finish_reason);
    }
  }
  return found;
}

const checks = {
  chat: {
    async models_are_listed() {
      const found = [];
      for await (const item of client.models.list()) found.push(item.id);
      assert.ok(found.includes(model), `${found}`);
      assert.equal((await client.models.retrieve(model)).id, model);
    },
    async chat_is_answered() {
      const answer = await client.chat.completions.create({ model, messages: HORSE, max_tokens: 16, temperature: 0 });
      assert.equal(answer.object, "chat.completion");
      assert.equal(answer.model, model);
      assert.equal(answer.choices[0].message.role, "assistant");
      assert.ok(answer.choices[0].message.content);
      assert.ok(["stop", "length"].includes(answer.choices[0].finish_reason));
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    },
    async chat_is_streamed() {
      const options = { stream: true, stream_options: { include_usage: true } };
      const found = await read(
        await client.chat.completions.create({ model, messages: HORSE, max_tokens: 16, temperature: 0, ...options }),
      );
      assert.ok(found.text);
      assert.equal(found.reasons.length, 1);
      assert.ok(found.usage.completion_tokens > 0);
    },
    async a_stream_can_be_left() {
      const stream = await client.chat.completions.create({ model, messages: HORSE, max_tokens: 64, stream: true });
      for await (const _chunk of stream) break;
      await checks.chat.chat_is_answered();
    },
    async a_time_out_is_the_clients_own_and_harms_nobody() {
      const long = { messages: [{ role: "user", content: "hang" }], max_tokens: 1500, ignore_eos: true };
      await fails(OpenAI.APIConnectionTimeoutError, () =>
        client.chat.completions.create({ model, ...long }, { timeout: 500 }),
      );
      await checks.chat.chat_is_answered();
    },
    async tools_can_be_offered() {
      const options = { tools: TOOLS, max_tokens: 8, temperature: 0 };
      const answer = await client.chat.completions.create({ model, messages: HORSE, ...options });
      const { content, tool_calls } = answer.choices[0].message;
      assert.ok(content || tool_calls, "whether one is called is the model's choice");
    },
    async text_is_completed() {
      const answer = await client.completions.create({ model, prompt: "A horse is", max_tokens: 8, temperature: 0 });
      assert.equal(answer.object, "text_completion");
      assert.ok(answer.choices[0].text);
    },
    async an_unknown_model_is_not_found_and_near_names_are_told() {
      const error = await fails(OpenAI.NotFoundError, () =>
        client.chat.completions.create({ model: `${model}x`, messages: HORSE }),
      );
      assert.equal(error.status, 404);
      assert.equal(error.code, "model_not_found");
      assert.ok(error.message.includes(model), error.message);
    },
    async a_wrong_key_is_refused() {
      const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "not-a-key", maxRetries: 0 });
      await fails(OpenAI.AuthenticationError, () => stranger.chat.completions.create({ model, messages: HORSE }));
    },
    async wrong_input_is_refused() {
      const error = await fails(OpenAI.BadRequestError, () =>
        client.chat.completions.create({ model, messages: "not a list" }),
      );
      assert.ok(error.message);
    },
  },
  echo: {
    async every_character_arrives() {
      const said = "gr\u00fc\u00df dich \u{1f40e}";
      const messages = [{ role: "user", content: said }];
      const whole = await client.chat.completions.create({ model, messages });
      assert.ok(whole.choices[0].message.content.endsWith(said));
      const found = await read(await client.chat.completions.create({ model, messages, stream: true }));
      assert.equal(found.text, whole.choices[0].message.content);
    },
  },
  tools: {
    async tools_are_called() {
      const messages = [{ role: "user", content: "tool" }];
      const answer = await client.chat.completions.create({ model, messages, tools: TOOLS });
      assert.equal(answer.choices[0].finish_reason, "tool_calls");
      const [call] = answer.choices[0].message.tool_calls;
      assert.deepEqual([call.function.name, call.function.arguments], ["weather", '{"city": "Paris"}']);
      const final = await client.chat.completions.stream({ model, messages, tools: TOOLS }).finalChatCompletion();
      const [streamed] = final.choices[0].message.tool_calls;
      assert.deepEqual([streamed.function.name, streamed.function.arguments], ["weather", '{"city": "Paris"}']);
      const result = { role: "tool", tool_call_id: call.id, content: "sunny" };
      const followed = await client.chat.completions.create({
        model,
        messages: [...messages, answer.choices[0].message, result],
        tools: TOOLS,
      });
      assert.ok(followed.choices[0].message.content.includes("sunny"));
    },
  },
  responses: {
    async a_response_is_given() {
      const answer = await client.responses.create({ model, input: HORSE[0].content, max_output_tokens: 16 });
      assert.equal(answer.object, "response");
      assert.ok(answer.output_text);
      assert.ok(answer.usage.output_tokens > 0);
    },
    async a_response_is_streamed() {
      const stream = client.responses.stream({ model, input: HORSE[0].content, max_output_tokens: 16 });
      const kinds = [];
      for await (const event of stream) kinds.push(event.type);
      assert.equal(kinds[0], "response.created");
      assert.ok(["response.completed", "response.incomplete"].includes(kinds.at(-1)), `${kinds}`);
      assert.ok(kinds.includes("response.output_text.delta"), `${kinds}`);
      assert.ok((await stream.finalResponse()).output_text);
    },
  },
  response_tools: {
    async a_response_calls_tools() {
      const tools = [{ type: "function", name: "weather", parameters: { type: "object", properties: {} } }];
      const answer = await client.responses.create({ model, input: "tool", tools });
      const [called] = answer.output;
      assert.deepEqual([called.type, called.name, called.arguments], ["function_call", "weather", '{"city": "Paris"}']);
      const result = { type: "function_call_output", call_id: called.call_id, output: "sunny" };
      const input = [{ role: "user", content: "tool" }, called, result];
      assert.ok((await client.responses.create({ model, input, tools })).output_text.includes("sunny"));
    },
  },
  vision: {
    async images_are_sent() {
      const url = `data:image/png;base64,${PNG}`;
      const content = [
        { type: "text", text: "Look." },
        { type: "image_url", image_url: { url } },
      ];
      const answer = await client.chat.completions.create({ model, messages: [{ role: "user", content }] });
      assert.ok(answer.choices[0].message.content.includes(url));
      const parts = [
        { type: "input_text", text: "Look." },
        { type: "input_image", image_url: url, detail: "auto" },
      ];
      const response = await client.responses.create({ model, input: [{ role: "user", content: parts }] });
      assert.ok(response.output_text.includes(url));
    },
  },
  structured: {
    async a_schema_is_kept() {
      const schema = {
        type: "object",
        properties: { colour: { enum: ["bay", "grey"] } },
        required: ["colour"],
        additionalProperties: false,
      };
      const json_schema = { name: "horse", strict: true, schema };
      const answer = await client.chat.completions.parse({
        model,
        messages: HORSE,
        response_format: { type: "json_schema", json_schema },
        max_tokens: 64,
        temperature: 0,
      });
      assert.ok(["bay", "grey"].includes(JSON.parse(answer.choices[0].message.content).colour));
      const response = await client.responses.create({
        model,
        input: HORSE[0].content,
        text: { format: { type: "json_schema", ...json_schema } },
        max_output_tokens: 64,
        temperature: 0,
      });
      assert.ok(["bay", "grey"].includes(JSON.parse(response.output_text).colour));
    },
  },
  embeddings: {
    async texts_are_embedded() {
      const answer = await client.embeddings.create({ model, input: ["abc", "abcde"] });
      assert.deepEqual(
        answer.data.map((item) => item.embedding.slice(0, 2)),
        [
          [3, 0.5],
          [5, 0.5],
        ],
      );
    },
  },
  vectors: {
    async texts_become_vectors() {
      const answer = await client.embeddings.create({ model, input: ["a horse", "a mare"] });
      const [horse, mare] = answer.data.map((item) => item.embedding);
      assert.ok(horse.length > 100);
      assert.equal(horse.length, mare.length);
      assert.notDeepEqual(horse, mare);
    },
  },
  media: {
    async sound_and_pictures_pass() {
      const file = await OpenAI.toFile(Buffer.from("spoken words"), "a.wav");
      assert.equal((await client.audio.transcriptions.create({ model, file })).text, "spoken words");
      const options = { voice: "ann", response_format: "wav" };
      const spoken = await client.audio.speech.create({ model, input: "hello", ...options });
      assert.equal(Buffer.from(await spoken.arrayBuffer()).toString(), "RIFFann:hello");
      const picture = { prompt: "a horse", size: "256x256", response_format: "b64_json" };
      const drawn = await client.images.generate({ model, ...picture });
      assert.equal(Buffer.from(drawn.data[0].b64_json, "base64").toString("latin1").slice(1, 4), "PNG");
    },
  },
  errors: {
    async a_failing_backend_is_an_error() {
      const messages = [{ role: "user", content: "fail" }];
      const error = await fails(OpenAI.InternalServerError, () => client.chat.completions.create({ model, messages }));
      assert.ok(error.message.includes("fell over"), error.message);
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
