/** Requests to the server: its token, the API key, errors as the server words them. */

const KEY = "gptoss-key";

/** @param {Document} page @param {string} name */
const meta = (page, name) =>
  page.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";

let token = meta(document, "gptoss-token");

/** Whether the server has a key and this browser does not. */
export const lacksKey = () => meta(document, "gptoss-key") === "yes" && !localStorage.getItem(KEY);

/** @param {string} key */
export const keepKey = (key) => localStorage.setItem(KEY, key);

/** A request that failed, with what to do about it. */
export class ApiError extends Error {
  /** @param {string} message @param {{hint?: string, code?: string, status?: number}} [facts] */
  constructor(message, { hint = "", code = "", status = 0 } = {}) {
    super(message);
    this.hint = hint;
    this.code = code;
    this.status = status;
  }
}

/**
 * Send a request and return the response.
 * @param {string} method @param {string} path
 * @param {any} [body] sent as JSON; a string as it is
 * @param {AbortSignal} [signal]
 */
export async function send(method, path, body, signal) {
  for (let isRetry = false; ; isRetry = true) {
    const response = await attempt(method, path, body, signal);
    if (response.ok) return response;
    const error = await readError(response);
    if (error.code !== "StaleTokenError" || isRetry) throw error;
    await renewToken();
  }
}

/**
 * Send a request and return what the server answers.
 * @type {(method: string, path: string, body?: any) => Promise<any>}
 */
export const call = async (method, path, body) => (await send(method, path, body)).json();

/**
 * Yield the lines of a stream as values.
 * @param {string} method @param {string} path @param {any} body @param {AbortSignal} signal
 * @returns {AsyncGenerator<any>}
 */
export async function* lines(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) if (part.trim()) yield JSON.parse(part);
  }
}

/** @param {string} method @param {string} path @param {any} body @param {AbortSignal} [signal] */
async function attempt(method, path, body, signal) {
  const key = localStorage.getItem(KEY);
  const headers = new Headers({ "X-Gptoss-Token": token });
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  try {
    return await fetch(path, { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer.", { hint: "`gptoss serve` starts it." });
  }
}

/** @param {Response} response */
async function readError(response) {
  const { status } = response;
  const body = await response.json().catch(() => ({}));
  return new ApiError(body.error || `The server answered with status ${status}.`, { ...body, status });
}

/** A server that was started again has another token, which its page has. */
async function renewToken() {
  const response = await fetch("/", { headers: { Accept: "text/html" }, cache: "no-store" });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  token = meta(page, "gptoss-token") || token;
}
