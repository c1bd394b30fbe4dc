// The npm package `openai` against a real server and the real nano model.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import * as t from "./shared.mjs";

const client = new OpenAI({ baseURL: `${t.url}/v1`, apiKey: "any", maxRetries: 0 });
const base = { model: "nano", temperature: 0 };
const chat = client.chat.completions;

test("chat", async () => {
  const reply = await chat.create({ ...base, messages: t.FRANCE });
  assert.equal(reply.choices[0].message.content, t.PARIS);
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.ok(reply.usage.completion_tokens > 0);
});

test("stream", async () => {
  const runner = chat.stream({ ...base, messages: t.FRANCE });
  let text = "";
  runner.on("content", (delta) => (text += delta));
  assert.equal(await runner.finalContent(), t.PARIS);
  assert.equal(text, t.PARIS);
});

test("tools", async () => {
  const asked = { ...base, tools: [t.WEATHER] };
  const called = await chat.stream({ ...asked, messages: t.TOKYO }).finalMessage();
  const [call] = called.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), { location: "Tokyo" });
  const result = { role: "tool", tool_call_id: call.id, content: t.RESULT };
  const reply = await chat.create({ ...asked, messages: [...t.TOKYO, called, result] });
  assert.equal(reply.choices[0].message.content, t.SUNNY);
});

test("format", async () => {
  const json_schema = { name: "person", schema: t.PERSON, strict: true };
  const response_format = { type: "json_schema", json_schema };
  const reply = await chat.parse({ ...base, messages: t.EXTRACT, response_format });
  assert.deepEqual(JSON.parse(reply.choices[0].message.content), { name: "Bob Smith", age: 42 });
});

test("abort", async () => {
  const body = { ...base, messages: t.COUNT, reasoning_effort: "none", stream: true };
  const stream = await chat.create(body);
  for await (const _ of stream) await t.stopsTheEngine(() => stream.controller.abort());
});

test("responses", async () => {
  const first = await client.responses.create({ ...base, input: t.FRANCE });
  assert.equal(first.output_text, t.PARIS);
  const events = client.responses.stream({
    ...base,
    input: t.TOKYO,
    tools: [{ type: "function", ...t.WEATHER.function, strict: false }],
    previous_response_id: first.id,
  });
  const called = await events.finalResponse();
  const call = called.output.find((item) => item.type === "function_call");
  const again = await client.responses.create({
    ...base,
    input: [{ type: "function_call_output", call_id: call.call_id, output: t.RESULT }],
    previous_response_id: called.id,
  });
  assert.equal(again.output_text, t.SUNNY);
  const items = await client.responses.inputItems.list(again.id, { order: "asc" });
  assert.deepEqual(items.data.at(-1).call_id, call.call_id);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), { status: 404 });
});

test("models and errors", async () => {
  const models = await client.models.list();
  assert.ok(models.data.some((model) => model.id === "nano"));
  await assert.rejects(chat.create({ model: "nope", messages: t.FRANCE }), {
    status: 404,
    code: "model_not_found",
  });
});
