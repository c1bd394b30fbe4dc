/**
 * The state of the page, and the server's stream of changes that keeps it current.
 *
 * The stream is closed while the tab is hidden, so that such a tab costs nothing. Every stream
 * begins with the whole state.
 */

import { ApiError, hasKey, lines } from "./api.js";
import { codePoints } from "./format.js";

/** @typedef {import("./types").Turn} Turn */
/** @typedef {import("./types").Chat} Chat */

export const PAGE = 200; // chats of each folder that are listed, before more are asked for

export const state = {
  chats: /** @type {Chat[]} */ ([]),
  nChats: PAGE,
  answering: /** @type {number[]} */ ([]), // chats
  unseen: /** @type {Set<number>} */ (new Set()), // chats with an answer that ended elsewhere
  chatId: /** @type {number | null} */ (null),
  chat: /** @type {Chat | null} */ (null),
  turns: /** @type {Map<number, Turn>} */ (new Map()),
  progress: /** @type {Record<number, import("./types").Progress>} */ ({}),
  draft: { model: "", effort: "", preset: "", system: "", options: {}, is_temporary: false },
  isLocked: false, // saved chats want their passphrase
  query: "",
  hits: /** @type {import("./types").Hit[]} */ ([]),
  hasMoreHits: false,
  sought: /** @type {number | null} */ (null), // the turn to scroll to
  isSent: false, // something was sent just now: to the end
  editing: /** @type {number | null} */ (null), // the question that is edited
  models: /** @type {import("./types").Model[]} */ ([]),
  loaded: /** @type {import("./types").Loaded[]} */ ([]),
  fits: /** @type {import("./types").Fits} */ ({ models: [], is_new: false, suggested: "", advice: "" }),
  jobs: /** @type {Record<string, import("./types").Job>} */ ({}), // by model
  tools: /** @type {import("./types").ToolGroup[]} */ ([]), // of the chat
  presets: /** @type {import("./types").Preset[]} */ ([]),
  preview: /** @type {import("./types").Preview | null} */ (null),
  dialog: /** @type {import("./types").Dialog | null} */ (null),
  notice: /** @type {import("./types").Notice | null} */ (null),
  spoken: "", // for screen readers
  isLost: false, // the server does not answer
  isSidebarOpen: false, // on a narrow screen
};

/** Whether nothing of the open chat is kept: the ids of such chats begin at 2 ** 30. */
export const isTemporary = () => (state.chatId === null ? state.draft.is_temporary : state.chatId >= 2 ** 30);

const LET_OUT = "The server does not know this browser any more. It was not used for 30 days, or was taken back by gptoss keys rm.";

/** @type {Set<() => void>} */
const watchers = new Set();
let frame = 0;

/** Change the state; what shows it is painted with the next frame. @param {Partial<typeof state>} changes */
export function set(changes) {
  Object.assign(state, changes);
  if (!document.hidden && state.chatId !== null && state.unseen.has(state.chatId))
    state.unseen = new Set([...state.unseen].filter((id) => id !== state.chatId));
  nameTab();
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    for (const watcher of watchers) watcher();
  });
}

/** Say in the tab's title what it has, and whether something is answering or was answered. */
function nameTab() {
  const name = state.chat?.title && !isTemporary() ? `${state.chat.title} · gptoss` : "gptoss"; // browsers keep it
  const title = `${state.unseen.size ? "● " : state.answering.length ? "… " : ""}${name}`;
  if (document.title !== title) document.title = title;
}

/** Call a function after changes. @param {() => void} watcher */
export function watch(watcher) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

/** Show an error with its hint. @param {unknown} error */
export function fail(error) {
  if (error instanceof ApiError && error.status === 401) {
    const why = hasKey() ? "The server does not know this key." : LET_OUT;
    return set({ chats: [], chat: null, turns: new Map(), dialog: { kind: "key", why } });
  }
  if (error instanceof ApiError && error.status === 423) return set({ chats: [], isLocked: true, dialog: { kind: "unlock" } });
  const text = error instanceof Error ? error.message : String(error);
  const hint = error instanceof ApiError ? error.hint : "";
  set({ notice: { text, hint, isError: true } });
}

/** Say that a part of the page did not arrive. */
export const notLoaded = () =>
  set({ notice: { text: "A part of this page could not be loaded.", hint: "Reload the page.", isError: true } });

/** @type {AbortController | null} */
let stream = null;
let onGone = () => {};
let onEnd = (/** @type {Turn} */ _turn) => {};
let onAnswered = (/** @type {number[]} */ _ids) => {};

/** Say what follows where chats have been answered. @param {(ids: number[]) => void} answered */
export const whenAnswered = (answered) => void (onAnswered = answered);

/**
 * Say what else happens: the open chat was deleted, or an answer has ended.
 * @param {() => void} gone @param {(turn: Turn) => void} end
 */
export function when(gone, end) {
  [onGone, onEnd] = [gone, end];
}

/** Open the stream for the chat that is open, in place of an earlier one. */
export async function connect() {
  stream?.abort();
  const mine = (stream = new AbortController());
  const path = `?n=${state.nChats}${state.chatId === null ? "" : `&chat=${state.chatId}`}`;
  for (let delayMs = 250; !mine.signal.aborted; delayMs = Math.min(2 * delayMs, 8000)) {
    try {
      for await (const event of lines("GET", `/api/gptoss/chats/changes${path}`, undefined, mine.signal)) {
        if (mine.signal.aborted) return;
        if (event.error) throw new ApiError(event.error, event);
        delayMs = 250;
        if (state.isLost) set({ isLost: false });
        apply(event);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof ApiError && error.code === "ChatNotFoundError") return onGone();
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        set({ isLost: false });
        return fail(error);
      }
    }
    set({ isLost: true });
    await new Promise((resolve) => setTimeout(resolve, delayMs));
  }
}

export function disconnect() {
  stream?.abort();
}

/** Let a hidden tab cost nothing, once no answer is awaited. */
export const rest = () => state.answering.length || disconnect();

/** Take one change. @param {any} event */
export function apply(event) {
  switch (event.event) {
    case "chats":
      return set({ chats: event.chats, isLocked: false });
    case "answering": {
      const ended = state.answering.filter((id) => !event.answering.includes(id));
      const unseen = ended.filter((id) => id !== state.chatId || document.hidden);
      set({ answering: event.answering, unseen: new Set([...state.unseen, ...unseen]) });
      onAnswered(ended);
      if (document.hidden) rest();
      return;
    }
    case "tree":
      if (event.chat.id !== state.chatId) return;
      return set({ chat: event.chat, turns: new Map(event.turns.map((/** @type {Turn} */ t) => [t.id, t])) });
    case "chat":
      return applyChat(event.chat);
    case "turn":
      return applyTurn(event.turn);
    case "text":
      return applyText(event);
    case "progress":
      return set({ progress: { ...state.progress, [event.turn_id]: event } });
    case "notice":
      return set({ notice: { text: event.notice, hint: "", isError: false } });
    case "deleted":
      set({ chats: state.chats.filter((chat) => chat.id !== event.chat_id) });
      if (event.chat_id === state.chatId) onGone();
  }
}

/** @param {Chat} chat */
export function applyChat(chat) {
  set({ chats: state.chats.map((other) => (other.id === chat.id ? chat : other)) });
  if (chat.id === state.chatId) set({ chat });
}

/** @param {Turn} turn */
export function applyTurn(turn) {
  if (turn.chat_id !== state.chatId) return;
  const before = state.turns.get(turn.id);
  set({ turns: new Map(state.turns).set(turn.id, turn) });
  if (turn.stats.question && !before?.stats.question) set({ spoken: `The model asks to run ${turn.tool_name}.` });
  if (before?.state !== "streaming" || turn.state === "streaming") return;
  onEnd(turn);
  if (turn.role === "assistant" && !turn.tool_calls.length) onAnswered([turn.chat_id]);
}

/** @param {any} event */
function applyText({ turn_id, at, content = "", reasoning = "" }) {
  const turn = state.turns.get(turn_id);
  if (!turn) return;
  const nHere = codePoints(turn.content) - at.content;
  const nReasoningHere = codePoints(turn.reasoning) - at.reasoning;
  if (nHere < 0 || nReasoningHere < 0) return void connect(); // something is missing
  state.turns.set(turn_id, {
    ...turn,
    content: turn.content + after(content, nHere),
    reasoning: turn.reasoning + after(reasoning, nReasoningHere),
  });
  set({ turns: state.turns });
}

/** Leave out characters that are here already. @param {string} text @param {number} n */
const after = (text, n) => (n ? Array.from(text).slice(n).join("") : text);
