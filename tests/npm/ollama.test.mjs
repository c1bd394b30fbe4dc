// The npm package `ollama` against a real server and the real nano model.
import assert from "node:assert/strict";
import test from "node:test";
import { Ollama } from "ollama";
import * as t from "./shared.mjs";

const client = new Ollama({ host: t.url });
const base = { model: "nano", options: { temperature: 0 } };

test("chat", async () => {
  const reply = await client.chat({ ...base, messages: t.FRANCE });
  assert.equal(reply.message.content, t.PARIS);
  assert.match(reply.message.thinking, /capital of France/);
  assert.equal(reply.done_reason, "stop");
  assert.ok(reply.eval_count > 0);
});

test("stream", async () => {
  const frames = [];
  const stream = await client.chat({ ...base, messages: t.FRANCE, stream: true });
  for await (const frame of stream) frames.push(frame);
  assert.equal(frames.map((f) => f.message.content).join(""), t.PARIS);
  assert.equal(frames.at(-1).done, true);
});

test("tools", async () => {
  const asked = { ...base, tools: [t.WEATHER] };
  const called = await client.chat({ ...asked, messages: t.TOKYO });
  const [call] = called.message.tool_calls;
  assert.equal(call.function.name, "get_current_weather");
  assert.deepEqual(call.function.arguments, { location: "Tokyo" });
  const result = { role: "tool", tool_name: call.function.name, content: t.RESULT };
  const messages = [...t.TOKYO, called.message, result];
  assert.equal((await client.chat({ ...asked, messages })).message.content, t.SUNNY);
});

test("format", async () => {
  const reply = await client.chat({ ...base, messages: t.EXTRACT, format: t.PERSON });
  assert.deepEqual(JSON.parse(reply.message.content), { name: "Bob Smith", age: 42 });
  const forced = await client.generate({ ...base, prompt: "hello", format: t.PERSON });
  assert.deepEqual(Object.keys(JSON.parse(forced.response)), ["name", "age"]);
});

test("abort", async () => {
  const stream = await client.chat({ ...base, messages: t.COUNT, think: false, stream: true });
  await assert.rejects(
    async () => {
      for await (const _ of stream) await t.stopsTheEngine(() => stream.abort());
    },
    { name: "AbortError" },
  );
});

test("models and errors", async () => {
  const { models } = await client.list();
  assert.ok(models.some((model) => model.name === "nano"));
  assert.ok((await client.show({ model: "nano" })).capabilities.includes("tools"));
  await assert.rejects(client.chat({ model: "nope", messages: t.FRANCE }), {
    status_code: 404,
    error: "model 'nope' not found",
  });
});
