/** What the user does: requests to the server and what follows from them. Errors become notices. */

import { ApiError, call, lines, send } from "./api.js";
import { duration, plural, size } from "./format.js";
import { apply, applyChat, applyTurn, connect, fail, isTemporary, on, PAGE, patch, set, state } from "./store.js";
import { branch, compose, newestBelow } from "./tree.js";

const [CHATS, TEMPORARY] = ["/api/gptoss/chats", "#/temporary"];
const RATE_MS = 20_000; // of a download
const MAX_IMPORT = 2 ** 25; // bytes
export const HITS = 50; // of a search, before more are asked for

/**
 * Make an action of a function that may fail.
 * @template {any[]} T
 * @param {(...args: T) => Promise<any>} act
 * @returns {(...args: T) => Promise<boolean>} whether it succeeded
 */
const action =
  (act) =>
  async (...args) => {
    try {
      await act(...args);
      return true;
    } catch (error) {
      fail(error);
      return false;
    }
  };

/**
 * The same, but a double click does it once.
 * @template {any[]} T @param {(...args: T) => Promise<any>} act @returns {(...args: T) => Promise<boolean>}
 */
function once(act) {
  const run = action(act);
  let running = /** @type {Promise<boolean> | null} */ (null);
  return (...args) => (running ??= run(...args).finally(() => (running = null)));
}

/** The turns that are shown: to one that is sent now, or to the end of the chat. */
export function shown() {
  const sent = state.sent.filter((turn) => turn.chat_id === state.chatId).slice(0, 1);
  return [...branch(state.turns, (sent[0] ? sent[0].parent_id : state.chat?.leaf_id) ?? null), ...sent];
}

/** The answer on the branch that is shown which streams. */
export const streaming = () => shown().find((turn) => turn.state === "streaming");

/** Go to a chat, or to one of its turns. @param {number | null} id @param {number | null} [turnId] */
export function go(id, turnId) {
  location.hash = id === null ? "#/" : `#/chat/${id}${turnId ? `/${turnId}` : ""}`;
  set({ isSidebarOpen: false });
}

/** Begin a chat of which nothing is kept, or go back to one that is. */
export const switchTemporary = () => void (location.hash = isTemporary() ? "#/" : TEMPORARY);

/** Delete the temporary chat that is left. */
function endTemporary() {
  if (state.chatId !== null && isTemporary()) call("DELETE", `${CHATS}/${state.chatId}`).catch(() => {});
}
addEventListener("pagehide", endTemporary);

/** Show what the address names. */
export async function route(isFirst = false) {
  const [, id = "", turn = ""] = /^#\/chat\/(\d+)(?:\/(\d+))?$/.exec(location.hash) ?? [];
  const chatId = id ? Number(id) : null;
  const is_temporary = location.hash === TEMPORARY;
  const isOther = isFirst || chatId !== state.chatId || (!id && is_temporary !== isTemporary());
  if (isOther) {
    if (chatId !== state.chatId) endTemporary();
    const draft = { ...state.draft, is_temporary };
    const dialog = isFirst ? state.dialog : null; // it was of the other chat
    set({ dialog, chatId, chat: null, turns: new Map(), progress: {}, editing: null, preview: null, spoken: "", visit: state.visit + 1, draft });
  }
  if (turn && chatId !== null) await choose(Number(turn), chatId);
  if (!isOther) return;
  void connect(); // says what is wrong
  await fetchTools("no").catch(() => {});
}

/** What the next answer is made with: in a new chat, the model and the effort of the last one. */
export function madeWith() {
  const last = state.chats.reduce((a, b) => (a && a.updated_s > b.updated_s ? a : b), /** @type {Chat | null} */ (null));
  const names = state.models.map((model) => model.name);
  if (state.chat?.model) return state.chat; // which may be gone: the user chooses another one
  const known = [state.draft.model, last?.model, state.loaded[0]?.name].find((name) => name && names.includes(name));
  const model = known ?? names[0] ?? ""; // an imported chat may have none
  return { ...state.draft, ...state.chat, model, effort: (state.chat ?? state.draft).effort || last?.effort || "medium" };
}

/** Read which models there are and which are loaded. */
export const readModels = action(async () => {
  const [tags] = await Promise.all([call("GET", "/api/tags"), readLoaded()]);
  set({ models: tags.models });
});

const readLoaded = action(async () => set({ loaded: (await call("GET", "/api/ps")).models }));

export const readFits = action(async () => set({ fits: await call("GET", "/api/gptoss/fits") }));

export const readPresets = action(async () => set({ presets: (await call("GET", "/api/gptoss/presets")).presets }));

/** List more chats of each folder. */
export const listMore = () => [set({ nChats: state.nChats + PAGE }), connect()];

let sought = "";

/** Find chats with these words. @param {string} query @param {number} [limit] */
export async function search(query, limit = HITS) {
  sought = query;
  if (!query.trim()) return set({ query, hits: [] });
  try {
    const { hits } = await call("GET", `${CHATS}?q=${encodeURIComponent(query)}&limit=${limit}`);
    if (sought === query) set({ query, hits, hasMoreHits: hits.length === limit, spoken: hits.length ? `${hits.length} found` : "Nothing found" });
  } catch (error) {
    fail(error);
  }
}

/** Send a message at the end of the chat, which begins with it if it is new. */
export const ask = action(async (/** @type {Chip[]} */ chips, /** @type {string} */ typed, begin = (/** @type {number} */ _chatId) => {}) => {
  let { chatId, chat } = state;
  const isNew = chatId === null;
  const place = async (/** @type {Turn} */ turn) => {
    if (chatId === null) {
      if (!madeWith().model) await readModels();
      const { model, effort, preset, system, options, is_temporary } = /** @type {Draft} */ (madeWith());
      chatId = turn.chat_id = /** @type {number} */ ((await call("POST", CHATS, { model, effort, preset, options, system, is_temporary })).id);
      set({ draft: { ...state.draft, preset: "", system: "", options: {} } });
      if (state.chatId === null) [history.pushState(null, "", `#/chat/${chatId}`), set({ chatId, chat: null, turns: new Map() })];
      begin(chatId);
    }
    if (!chat) {
      const tree = await call("GET", `${CHATS}/${chatId}`);
      chat = /** @type {Chat} */ (tree.chat);
      turn.parent_id = chat.leaf_id;
      apply({ event: "tree", ...tree });
    }
    const { model, effort } = madeWith();
    if (state.chatId === chatId && model && model !== chat.model) await change(chat, { model, effort });
  };
  try {
    await question(chatId, chat?.leaf_id ?? null, chips, typed, place);
  } finally {
    if (isNew) void connect(); // not before: its tree would not have the question yet
  }
});

export const tryOut = once((/** @type {string} */ text) => ask([], text));

/** Return the last turn of a chat, which need not be open. @param {number} chatId @returns {Promise<Turn | undefined>} */
export async function lastOf(chatId) {
  const { chat, turns } = await call("GET", `${CHATS}/${chatId}`);
  return turns.find((/** @type {Turn} */ turn) => turn.id === chat.leaf_id);
}

/** Ask after a turn. */
export const askAfter = action(async (/** @type {Turn} */ turn, /** @type {Chip[]} */ chips, /** @type {string} */ typed) =>
  question(turn.chat_id, turn.id, chips, typed),
);

/** Ask another version of a question. */
export const askInstead = once(async (/** @type {Turn} */ turn, /** @type {Chip[]} */ chips, /** @type {string} */ typed) =>
  question(turn.chat_id, turn.parent_id, chips, typed),
);

/**
 * Ask a question, which is shown before the server has it; `place` finds the end of its chat.
 * @param {number | null} chat_id @param {number | null} parent_id @param {Chip[]} chips @param {string} typed
 * @param {(turn: Turn) => Promise<void>} [place]
 */
async function question(chat_id, parent_id, chips, typed, place) {
  const { content, folds } = compose(chips, typed);
  const turn = /** @type {Turn} */ (/** @type {any} */ ({ id: 0, chat_id, parent_id, role: "user", content, state: "done", stats: { folds } }));
  set({ sent: [...state.sent, turn], isSent: state.isSent || chat_id === state.chatId });
  try {
    await place?.(turn);
    const { question, answer } = await call("POST", `${CHATS}/${turn.chat_id}/ask`, { content, folds, parent_id: turn.parent_id });
    show(question, answer);
  } finally {
    set({ sent: state.sent.filter((each) => each !== turn) });
  }
}

/** Show turns that are new at the end of their branch, and what the stream brought below. @param {Turn[]} turns */
function show(...turns) {
  for (const turn of turns) if (!state.turns.has(turn.id)) applyTurn(turn);
  const last = turns.at(-1);
  if (!last || last.chat_id !== state.chatId) return;
  if (state.chat) set({ chat: { ...state.chat, leaf_id: newestBelow(state.turns, last.id) } });
  set({ spoken: "The model is answering.", isSent: true, notice: null });
}

/** Answer a question again, or what a tool brought. */
export const retry = once(async (/** @type {Turn} */ turn, parent_id = turn.parent_id) =>
  show((await call("POST", `${CHATS}/${turn.chat_id}/answer`, { parent_id })).answer),
);

/** Answer a question again with another model, and keep that model for the chat. */
export const retryWith = once(async (/** @type {Turn} */ turn, /** @type {string} */ model) => {
  await setModel(model, madeWith().effort);
  await retry(turn);
});

/** @param {Turn} turn @param {string} what @param {object} [more] */
const post = (turn, what, more) => call("POST", `${CHATS}/${turn.chat_id}/${what}`, { turn_id: turn.id, ...more });

/** Answer whether a call may run. */
export const decide = action((/** @type {Turn} */ turn, /** @type {string} */ scope, reason = "") => post(turn, "allow", { scope, reason }));

/** Take back the last patch of the chat. */
export const undo = once(async () => call("POST", `${CHATS}/${state.chatId}/undo`));

/** Read what the chat may call; those that are on are started for it. */
export const readTools = action(async () => fetchTools("yes"));

/** @param {"yes" | "no"} start */
async function fetchTools(start) {
  const { chatId } = state;
  const { groups } = await call("GET", `${CHATS}/tools?start=${start}${chatId === null ? "" : `&chat=${chatId}`}`);
  if (state.chatId === chatId) set({ tools: groups });
}

/** Add an MCP server, and switch it on. */
export const addServer = action(async (/** @type {Server} */ server, /** @type {string[]} */ on) => {
  await call("POST", "/api/gptoss/mcp", server);
  await setTools([...on, server.name]);
});

export const removeServer = action(async (/** @type {string} */ name) => call("DELETE", `/api/gptoss/mcp/${name.split("/").map(encodeURIComponent).join("/")}`));

/** Switch the tools of the chat. */
export const setTools = action(async (/** @type {string[]} */ names) => {
  const options = { ...madeWith().options, tools: names.sort().join() };
  if (state.chat) await change(state.chat, { options });
  else set({ draft: { ...state.draft, options } });
});

/** Continue an answer that was cut. */
export const resume = once(async (/** @type {Turn} */ turn) => {
  const { answer } = await post(turn, "continue");
  stopping.delete(turn.id);
  const known = state.turns.get(answer.id);
  if (known?.state !== "streaming") applyTurn(answer);
});

export const stopping = new Set(); // turns

export const stop = action(async (/** @type {Turn} */ turn) => {
  stopping.add(turn.id);
  await post(turn, "stop");
});

/** End the reasoning of an answer. */
export const answerNow = action((/** @type {Turn} */ turn) => post(turn, "answer-now"));

/** Show the branch through a turn. */
export const choose = action(async (/** @type {number} */ turnId, chatId = state.chatId) => {
  set({ sought: turnId });
  if (chatId !== null) await patch(chatId, { leaf_id: turnId }, { leaf_id: newestBelow(state.turns, turnId) });
});

/** Change a chat: its title, its place in the list, its model, effort or options. */
export const change = action((/** @type {Chat} */ chat, /** @type {object} */ changes) => patch(chat.id, changes));

export const remove = once(async (/** @type {Chat} */ chat) => {
  await call("DELETE", `${CHATS}/${chat.id}`);
  set({ chats: state.chats.filter((other) => other.id !== chat.id) });
  if (chat.id === state.chatId) go(null);
});

/** Copy a branch down to a turn into a new chat. */
export const fork = once(async (/** @type {Turn} */ turn) => go((await post(turn, "fork")).id));

/** Save a chat as a file. */
export const exportChat = action(async (/** @type {Chat} */ chat, /** @type {"json" | "markdown"} */ format) => {
  const response = await send("GET", `${CHATS}/${chat.id}/export?format=${format}`);
  const title = chat.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  save(await response.blob(), `${title.slice(0, 60) || "chat"}.${format === "json" ? "json" : "md"}`);
});

/** Have the browser save a file. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Add the chats of an exported file. */
export const importChats = once(async (/** @type {File} */ file) => {
  const hint = "`gptoss chats import FILE`, on the server's machine, reads larger ones.";
  if (file.size > MAX_IMPORT) throw new ApiError(`${file.name} is larger than 32 MiB.`, { hint });
  const added = await call("POST", `${CHATS}/import`, await file.arrayBuffer()).catch((error) => {
    throw new ApiError(`${file.name}: ${error.message}`, error);
  });
  go(added.id);
  const text = [`${plural(added.n_chats, "chat")} imported.`, ...added.notes].join(" ");
  if (added.n_chats > 1 || added.notes.length) set({ notice: { text, hint: "", isError: false } });
});

/** Set what the next answers are made with. */
export const setModel = action(async (/** @type {string} */ model, /** @type {string} */ effort) => {
  set({ draft: { ...state.draft, model, effort } });
  if (state.chat) await change(state.chat, { model, effort });
});

/** Set the system prompt and the options of the chat. */
export const setInstructions = action(
  async (/** @type {string} */ system, /** @type {Options} */ options, /** @type {string} */ preset) => {
    const { chat } = state;
    if (!chat) return set({ draft: { ...state.draft, system, options, preset } });
    const now = shown()[0];
    if (system !== (now?.role === "system" ? now.content : "")) {
      const { turns } = await call("PUT", `${CHATS}/${chat.id}/system`, { content: system });
      for (const turn of turns) applyTurn(turn);
      applyChat((await call("GET", `${CHATS}/${chat.id}`)).chat);
    }
    if (JSON.stringify(options) !== JSON.stringify(chat.options)) await change(chat, { options });
  },
);

export const savePreset = action(async (/** @type {Preset} */ { name, ...preset }) => {
  await call("PUT", `/api/gptoss/presets/${encodeURIComponent(name)}`, preset);
  await readPresets();
});

export const removePreset = action(async (/** @type {string} */ name) => {
  await call("DELETE", `/api/gptoss/presets/${encodeURIComponent(name)}`);
  await readPresets();
});

/**
 * Load a model into memory, or download it, and show how far that is; an error stays where the job is shown.
 * @param {"load" | "pull"} what @param {string} model
 */
export async function run(what, model) {
  const abort = new AbortController();
  const { is_new: isFirst } = state.fits;
  const put = (/** @type {Job} */ job) => set({ jobs: { ...state.jobs, [model]: job } });
  const pace = what === "pull" ? pacing() : () => "";
  put({ what, text: "waiting", share: null, stop: () => abort.abort() });
  try {
    const path = what === "load" ? "/api/gptoss/load" : "/api/pull";
    for await (const line of lines("POST", path, { model }, abort.signal)) {
      if (line.error) throw new ApiError(line.error, line);
      const { status, completed = 0, total = 0 } = line;
      const bytes = `${size(completed)} of ${size(total)}${pace(completed, total)}`;
      const text = !total ? status : what === "pull" ? bytes : `${status}: ${bytes}`;
      put({ what, text, share: total ? completed / total : null, stop: () => abort.abort() });
    }
    const { [model]: _, ...others } = state.jobs;
    set({ jobs: others, spoken: `${model} is ready.` });
    if (what === "pull" && isFirst) await setModel(model, madeWith().effort);
  } catch (error) {
    const isShown = state.dialog?.kind === "models" || state.fits.is_new;
    const { message, hint = "", status = 0 } = /** @type {ApiError} */ (error);
    const over = { what, share: null, hint, isError: !abort.signal.aborted };
    put({ ...over, text: over.isError ? message : `Stopped at ${state.jobs[model]?.text.split(" · ")[0]}.` });
    if (over.isError && (!isShown || status === 401)) fail(error);
  }
  await readModels();
  if (what === "pull") await readFits();
}

/** Say of a download how fast it has been lately, and how long the rest takes. */
function pacing() {
  let seen = /** @type {{ms: number, bytes: number}[]} */ ([]);
  return (/** @type {number} */ done, /** @type {number} */ total) => {
    const ms = performance.now();
    seen = [...seen.filter((each) => ms - each.ms < RATE_MS), { ms, bytes: done }];
    const first = seen[0] ?? { ms, bytes: done };
    const rate = (1000 * (done - first.bytes)) / (ms - first.ms);
    return rate > 0 ? ` · ${size(Math.round(rate))}/s · ${duration((total - done) / rate)} left` : "";
  };
}

/** Free the memory that a model takes. */
export const unload = action(async (/** @type {string} */ model) => {
  await call("POST", "/api/generate", { model, keep_alive: 0 });
  await readModels();
});

on.gone = () => {
  set({ notice: { text: "This chat was deleted.", hint: "", isError: false } });
  go(null);
};
on.back = () => void readModels();
on.end = (turn) => {
  if (turn.role !== "assistant" || turn.tool_calls.length) return; // more follows
  const words = { done: "finished", stopped: "stopped", failed: "failed", streaming: "" };
  set({ spoken: `The answer has ${words[turn.state]}.` });
  void readLoaded(); // an answer loads its model, or gives it more context
};
