/** Requests to the server: the browser's token, the API key, errors as the server words them. */

const [KEY, TOKEN, PHONE, LINK] = ["gptoss-key", "gptoss-token", "gptoss-phone", "#open="];

/** Whether the server takes keys. */
export const takesKeys = document.querySelector('meta[name="gptoss-key"]')?.getAttribute("content") === "yes";

/** Whether this browser has nothing by which the server would know it. */
export const isUnknown = () => !localStorage.getItem(TOKEN) && !localStorage.getItem(KEY);

/** Exchange a link of `gptoss web` for a browser's token or a phone's key, which this origin keeps. */
export async function openLink() {
  if (!location.hash.startsWith(LINK)) return;
  const link = location.hash.slice(LINK.length);
  history.replaceState(null, "", "#/"); // it can be used once
  const { token, key } = await call("POST", "/api/gptoss/open", { link });
  localStorage.setItem(key ? KEY : TOKEN, key || token);
  if (key) localStorage.setItem(PHONE, "yes");
}

/** Call a function when another tab was let in. @param {() => void} enter */
export const whenLetIn = (enter) =>
  addEventListener("storage", (event) => [KEY, TOKEN].includes(event.key ?? "") && event.newValue && enter());

export const hasKey = () => localStorage.getItem(KEY) !== null;

/** @param {string} key */
export const keepKey = (key) => [localStorage.removeItem(PHONE), localStorage.setItem(KEY, key)];

/** Whether the key came by `gptoss web --lan`: it may chat, and change nothing else. */
export const isPhone = () => localStorage.getItem(PHONE) !== null;

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
 * @param {any} [body] sent as JSON; a string or bytes as they are
 * @param {AbortSignal} [signal]
 */
export async function send(method, path, body, signal) {
  const key = localStorage.getItem(KEY);
  const headers = new Headers({ "X-Gptoss-Token": localStorage.getItem(TOKEN) ?? "" });
  if (key) headers.set("Authorization", `Bearer ${key}`);
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const data = body === undefined || typeof body === "string" || body instanceof ArrayBuffer ? body : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: data, signal, cache: "no-store", keepalive: method === "DELETE" }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer.", { hint: "`gptoss serve` starts it." });
  });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new ApiError(problem.error || `The server answered with status ${response.status}.`, { ...problem, status: response.status });
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
