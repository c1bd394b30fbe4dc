// What both SDKs are tested with. GPTOSS_TEST_URL is the server's address.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

export const url = process.env.GPTOSS_TEST_URL;
export const ask = (content) => [{ role: "user", content }];
export const FRANCE = ask("What is the capital of France?");
export const PARIS = "The capital of France is Paris.";
export const TOKYO = ask("What is the weather in Tokyo?");
export const RESULT = '{"temperature": 21, "description": "sunny"}';
export const SUNNY = "It is 21 degrees and sunny in Tokyo.";
export const EXTRACT = ask('Extract name and age as JSON: "Bob Smith is 42 years old."');
export const COUNT = ask("Count from 1 to 900.");
export const PERSON = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
export const WEATHER = {
  type: "function",
  function: {
    name: "get_current_weather",
    description: "Gets the current weather in the provided location.",
    parameters: {
      type: "object",
      properties: {
        location: { type: "string", description: "The name of the city" },
        format: { type: "string", enum: ["celsius", "fahrenheit"], default: "celsius" },
      },
      required: ["location"],
    },
  },
};

async function nRunning() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^gptoss_engine_sequences_running{.*} (\d+)(?:\.0)?$/m.exec(text)[1]);
}

// Fails unless the engine works now and is idle soon after `abort`.
export async function stopsTheEngine(abort) {
  assert.equal(await nRunning(), 1);
  await abort();
  for (let i = 0; i < 60 && (await nRunning()) > 0; i++) await sleep(50);
  assert.equal(await nRunning(), 0);
}
