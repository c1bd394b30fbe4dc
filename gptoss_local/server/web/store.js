/**
 * The state of the page, and the server's stream of changes that keeps it current.
 *
 * The stream is closed while the tab is hidden, so that such a tab costs nothing. Every stream
 * begins with the whole state.
 */

import { ApiError, call, hasKey, lines } from "./api.js";
import { codePoints } from "./format.js";

export const PAGE = 200; // chats of each folder that are listed, before more are asked for

export const state = {
  chats: /** @type {Chat[]} */ ([]),
  nChats: PAGE,
  answering: /** @type {number[]} */ ([]), // chats
  unseen: /** @type {Set<number>} */ (new Set()), // chats with an answer that ended elsewhere
  chatId: /** @type {number | null} */ (null),
  chat: /** @type {Chat | null} */ (null),
  turns: /** @type {Map<number, Turn>} */ (new Map()),
  sent: /** @type {Turn[]} */ ([]), // questions that the server does not have yet
  progress: /** @type {Record<number, Progress>} */ ({}),
  draft: { model: "", effort: "", preset: "", system: "", options: {}, is_temporary: false },
  isLocked: false, // saved chats want their passphrase
  query: "",
  hits: /** @type {Hit[]} */ ([]),
  hasMoreHits: false,
  sought: /** @type {number | null} */ (null), // the turn to scroll to
  isSent: false, // something was sent just now: to the end
  visit: 0, // how often another chat was opened
  editing: /** @type {number | null} */ (null), // the question of which the edit has the focus
  models: /** @type {Model[]} */ ([]),
  loaded: /** @type {Loaded[]} */ ([]),
  fits: /** @type {Fits} */ ({ models: [], is_new: false, suggested: "", advice: "" }),
  jobs: /** @type {Record<string, Job>} */ ({}), // by model
  tools: /** @type {ToolGroup[]} */ ([]), // of the chat
  presets: /** @type {Preset[]} */ ([]),
  preview: /** @type {Preview | null} */ (null),
  dialog: /** @type {Dialog | null} */ (null),
  notice: /** @type {Notice | null} */ (null),
  spoken: "", // for screen readers
  nSpoken: 0,
  isLost: false, // the server does not answer
  isSidebarOpen: false, // on a narrow screen
};

/** Whether nothing of the open chat is kept: the ids of such chats begin at 2 ** 30. */
export const isTemporary = () => (state.chatId === null ? state.draft.is_temporary : state.chatId >= 2 ** 30);

const LET_OUT = "The server does not know this browser any more. It was not used for 30 days, or was taken back by gptoss keys rm.";

let paint = () => {};
let frame = 0;

/** Say what paints the state. @param {() => void} painter */
export const watch = (painter) => void (paint = painter);

/** Change the state, and paint it: the next key is for what is seen then. @param {Partial<typeof state>} changes */
export function set(changes) {
  Object.assign(state, changes);
  if (changes.spoken) state.nSpoken++; // the same words may be said again
  if (!document.hidden && state.chatId !== null && state.unseen.has(state.chatId))
    state.unseen = new Set([...state.unseen].filter((id) => id !== state.chatId));
  nameTab();
  paint();
}

/** Paint what streams, once a frame. @param {Partial<typeof state>} changes */
function setSoon(changes) {
  Object.assign(state, changes);
  frame ||= requestAnimationFrame(() => [(frame = 0), paint()]);
}

/** Say in the tab's title what it has, and whether something is answering or was answered. */
function nameTab() {
  const name = state.chat?.title && !isTemporary() ? `${state.chat.title} · gptoss` : "gptoss"; // browsers keep it
  const title = `${state.unseen.size ? "● " : state.answering.length ? "… " : ""}${name}`;
  if (document.title !== title) document.title = title;
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

/** What else follows where the open chat was deleted, an answer has ended, chats were answered, the server is back. */
export const on = { gone: () => {}, end: (/** @type {Turn} */ _turn) => {}, answered: (/** @type {number[]} */ _ids) => {}, back: () => {} };

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
        if (state.isLost) [set({ isLost: false }), on.back()];
        apply(event);
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof ApiError && error.code === "ChatNotFoundError") return on.gone();
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        set({ isLost: false });
        return fail(error);
      }
    }
    set({ isLost: true });
    await new Promise((resolve) => setTimeout(resolve, delayMs));
  }
}

export const disconnect = () => stream?.abort();

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
      on.answered(ended);
      if (document.hidden) rest();
      return;
    }
    case "tree": {
      const [{ chat, turns }, before] = [event, state.turns];
      if (chat.id !== state.chatId) return;
      set({ chat, turns: new Map(turns.map((/** @type {Turn} */ turn) => [turn.id, turn])) });
      for (const turn of turns) seeEnd(before.get(turn.id), turn);
      return;
    }
    case "chat":
      return applyChat(event.chat);
    case "turn":
      return applyTurn(event.turn);
    case "text":
      return applyText(event);
    case "progress":
      return setSoon({ progress: { ...state.progress, [event.turn_id]: event } });
    case "notice":
      return set({ notice: { text: event.notice, hint: "", isError: false } });
    case "deleted":
      set({ chats: state.chats.filter((chat) => chat.id !== event.chat_id) });
      if (event.chat_id === state.chatId) on.gone();
  }
}

let [unsaved, nUnsaved] = [/** @type {Partial<Chat>} */ ({}), 0]; // what the server has not answered to yet

/** Change a chat, here at once. @param {number} id @param {object} changes @param {Partial<Chat>} [seen]  what they are here */
export async function patch(id, changes, seen = changes) {
  nUnsaved++;
  unsaved = { ...(unsaved.id === id && unsaved), ...seen, id };
  if (state.chat?.id === id) set({ chat: { ...state.chat, ...seen } });
  const saved = call("PATCH", `/api/gptoss/chats/${id}`, changes).finally(() => --nUnsaved || (unsaved = {}));
  saved.catch(() => void connect()); // as it was
  applyChat(await saved);
}

/** @param {Chat} chat */
export function applyChat(chat) {
  set({ chats: state.chats.map((other) => (other.id === chat.id ? chat : other)) });
  if (chat.id === state.chatId) set({ chat: { ...chat, ...(chat.id === unsaved.id && unsaved) } });
}

/** @param {Turn} turn */
export function applyTurn(turn) {
  if (turn.chat_id !== state.chatId) return;
  const before = state.turns.get(turn.id);
  set({ turns: new Map(state.turns).set(turn.id, turn) });
  if (turn.stats.question && !before?.stats.question) set({ spoken: `The model asks to run ${turn.tool_name}.` });
  seeEnd(before, turn);
}

/** @param {Turn | undefined} before @param {Turn} turn */
function seeEnd(before, turn) {
  if (before?.state !== "streaming" || turn.state === "streaming") return;
  on.end(turn);
  if (turn.role === "assistant" && !turn.tool_calls.length) on.answered([turn.chat_id]);
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
  setSoon({ turns: state.turns });
}

/** Leave out characters that are here already. @param {string} text @param {number} n */
const after = (text, n) => (n ? Array.from(text).slice(n).join("") : text);
