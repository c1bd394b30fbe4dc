/** Where messages are written: text, files as chips, the model and its effort. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { ask, askAfter, askInstead, lastOf, madeWith, setModel, shown, stop, stopping, streaming } from "./actions.js";
import { foldPaste, readFile, withTokens } from "./attach.js";
import { plain } from "./format.js";
import { fail, isTemporary, on, set, state } from "./store.js";
import { ToolButton } from "./toolbox.js";
import { contextText, takeApart } from "./tree.js";
import { icon, IconButton, into, isComposing } from "./ui.js";
import { isGone, ModelPicker } from "./picker.js";

const [UNSENT, LATER] = ["gptoss-unsent", "sent when its files are read"];

/**
 * What was typed and not sent, by chat, or by the turn that is edited or answered; the tab keeps it when the page is
 * loaded again, but for temporary chats.
 * @typedef {{typed: string, chips: Chip[], isSent?: boolean}} Unsent  `isSent`: once its files are read
 * @type {Map<number | string | null, Unsent>}
 */
const unsent = new Map(JSON.parse(sessionStorage.getItem(UNSENT) ?? "[]"));
/** Messages that wait until their chat's answer is complete. @type {Map<number | null, Unsent[]>} */
const queues = new Map();
const waitingIn = (/** @type {number | null} */ chatId) => queues.get(chatId) ?? [];
const sending = new Set(); // chats, null for one that is begun
const missed = new Set(); // chats whose answer ended while `sendNext` ran
let steered = /** @type {number | null} */ (null); // the chat whose answer was stopped to send what waits

/** Put messages that wait back to where they were typed. @param {number | null} chatId @param {Unsent[]} [taken] */
function takeBack(chatId, taken = waitingIn(chatId)) {
  const place = chatId === state.chatId && isTemporary() ? TEMPORARY : chatId;
  const { typed, chips } = unsent.get(place) ?? NOTHING;
  const texts = [...taken.map((each) => each.typed), typed].filter(Boolean);
  queues.set(chatId, waitingIn(chatId).filter((each) => !taken.includes(each)));
  unsent.set(place, { typed: texts.join("\n\n"), chips: [...taken.flatMap((each) => each.chips), ...chips] });
  set({});
}

/** Move what was typed for a new chat to that chat. @param {number} chatId */
function begin(chatId) {
  for (const kept of /** @type {Map<any, any>[]} */ (isTemporary() ? [queues] : [queues, unsent])) {
    if (kept.has(null)) kept.set(chatId, kept.get(null));
    kept.delete(null);
  }
}

/** Send the first message that waits for an answer which has ended. @param {number} chatId */
async function sendNext(chatId) {
  const [first] = waitingIn(chatId);
  if (sending.has(chatId)) return void missed.add(chatId);
  missed.delete(chatId);
  if (!first) return;
  let isSent = false;
  sending.add(chatId);
  try {
    const last = await lastOf(chatId);
    if (!last || last.state === "streaming") return;
    if (last.state !== "done" && steered !== chatId) return takeBack(chatId);
    steered = null;
    queues.set(chatId, waitingIn(chatId).filter((each) => each !== first));
    isSent = await askAfter(last, first.chips, first.typed);
    if (!isSent) takeBack(chatId, [first, ...waitingIn(chatId)]);
    set({});
  } catch (error) {
    fail(error);
    takeBack(chatId);
  } finally {
    sending.delete(chatId);
    if (isSent || missed.has(chatId)) void sendNext(chatId); // its answer may have ended meanwhile
  }
}
on.answered = (ids) => ids.forEach(sendNext);

const { gone } = on;
on.gone = () => {
  if (!isTemporary()) takeBack(null, [...waitingIn(state.chatId), unsent.get(state.chatId) ?? NOTHING]); // of a chat that was deleted elsewhere
  gone();
};

addEventListener("pagehide", () => {
  for (const chatId of queues.keys()) takeBack(chatId);
  for (const draft of unsent.values()) [draft.chips, draft.isSent] = [draft.chips.filter(isRead), false];
  const drafts = [...unsent].filter(([at, { typed, chips }]) => !String(at).startsWith(TEMPORARY) && (typed || chips.length));
  try {
    sessionStorage.setItem(UNSENT, JSON.stringify(drafts));
  } catch {
    const texts = drafts.map(([id, { typed }]) => [id, { typed, chips: [] }]); // the files are too large
    sessionStorage.setItem(UNSENT, JSON.stringify(texts));
  }
});
const isRead = (/** @type {Chip} */ chip) => chip.text !== "";
const TEMPORARY = "temporary";
const place = () => (isTemporary() ? TEMPORARY : state.chatId);
export const editOf = (/** @type {Turn} */ turn) => `${isTemporary() ? TEMPORARY : "turn"}-${turn.id}`;
const NOTHING = { typed: "", chips: /** @type {Chip[]} */ ([]), isSent: /** @type {boolean | undefined} */ (false) };

/** Take files that were dropped anywhere on the page. @type {(files: Iterable<File>) => void} */
export let receive = () => {};

/** Focus the field, unless that opens a phone's keyboard. */
const toField = () =>
  matchMedia("(pointer: fine)").matches && /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();

/** Whether a question is edited. @param {Turn} turn */
export const isEdited = (turn) => unsent.has(editOf(turn));

/** Edit a question. @param {Turn} turn */
export function edit(turn) {
  if (!isEdited(turn)) unsent.set(editOf(turn), takeApart(turn));
  set({ editing: turn.id });
}

/** Edit the last question of the branch. */
export function editLast() {
  const last = shown().findLast((turn) => turn.role === "user");
  if (last?.id && !streaming()) edit(last);
}

/**
 * A field that grows, and the files above it.
 * @param {{label: string, typed: string, setTyped: (text: string) => void, chips: Chip[],
 *   setChips: (change: (chips: Chip[]) => Chip[]) => void, onSend: () => void, onEscape?: () => void,
 *   focusOn?: number | boolean, children?: any}} props
 */
function Field({ label, typed, setTyped, chips, setChips, onSend, onEscape, focusOn, children }) {
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [typed]);
  useLayoutEffect(() => {
    if (onEscape ? focusOn : matchMedia("(pointer: fine)").matches) area.current?.focus();
    area.current?.setSelectionRange(typed.length, typed.length);
  }, [focusOn]);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (isComposing(event)) return;
    const isEnter = event.key === "Enter" && !event.shiftKey && !event.altKey;
    if (isEnter && (event.ctrlKey || event.metaKey || !matchMedia("(pointer: coarse)").matches)) {
      event.preventDefault();
      onSend();
    } else if (event.key === "Escape" && onEscape) {
      event.stopPropagation();
      onEscape();
    } else if (event.key === "ArrowUp" && !typed && !onEscape) {
      event.preventDefault();
      editLast();
    }
  };
  const onPaste = (/** @type {ClipboardEvent} */ event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    const chip = foldPaste(event.clipboardData?.getData("text/plain") ?? "");
    if (!files.length && !chip) return;
    event.preventDefault();
    if (chip) fill([[chip, withTokens(chip)]], setChips);
    else add(files, setChips);
  };
  return html`${chips.length > 0 &&
    html`<ul class="chips" aria-label="Attached">
      ${chips.map(
        (chip, k) => html`<li><span>${plain(chip.label)}</span>
          <${IconButton} name="close" label=${`Remove ${plain(chip.label)}`}
            onClick=${() => setChips((now) => now.filter((_, i) => i !== k))} /></li>`,
      )}
    </ul>`}
    <textarea ref=${area} rows="1" autocomplete="off" aria-label=${label} placeholder=${label} value=${typed}
      onKeyDown=${onKeyDown} onPaste=${onPaste} onInput=${into(setTyped)}></textarea>
    ${children}`;
}

/** @typedef {(change: (chips: Chip[]) => Chip[]) => void} SetChips */

/** @param {Iterable<File>} files @param {SetChips} setChips */
function add(files, setChips) {
  fill([...files].map((file) => [{ label: `reading ${file.name}…`, text: "" }, readFile(file)]), setChips);
}

/**
 * Show chips at once, and the finished ones in their places once they come, unless they were removed.
 * @param {[Chip, Promise<Chip>][]} chips @param {SetChips} setChips
 */
function fill(chips, setChips) {
  setChips((now) => [...now, ...chips.map(([chip]) => chip)]);
  chips.forEach(async ([chip, coming]) => {
    let found = chip.text ? [chip] : [];
    try {
      found = [await coming];
    } catch (error) {
      fail(error);
    }
    setChips((now) => now.flatMap((each) => (each === chip ? found : [each])));
  });
}

/** What was typed in a place, and what changes it. @param {number | string | null} at */
export function useUnsent(at) {
  const [, again] = useState(0);
  const keep = (/** @type {Partial<Unsent>} */ changes) => {
    unsent.set(at, { ...(unsent.get(at) ?? NOTHING), ...changes });
    again((/** @type {number} */ n) => n + 1);
  };
  const setTyped = (/** @type {string} */ typed) => keep({ typed, isSent: false });
  const setChips = (/** @type {(chips: Chip[]) => Chip[]} */ change) => {
    const before = unsent.get(at) ?? NOTHING;
    const chips = change(before.chips);
    if (chips.length || unsent.has(at)) keep({ chips, isSent: before.isSent && chips.length === before.chips.length }); // not without a file
  };
  return { ...NOTHING, ...unsent.get(at), keep, setTyped, setChips };
}

/** Return what sends what was typed, once its files are read. @param {ReturnType<typeof useUnsent>} mine @param {() => Promise<void>} send */
function useSending({ chips, isSent, keep }, send) {
  const onSend = () => (chips.every(isRead) ? send() : keep({ isSent: true }));
  useEffect(() => {
    if (isSent && chips.every(isRead)) [keep({ isSent: false }), void send()];
  });
  return onSend;
}

/** Where a new message is written. @param {{chatId: number | null}} props */
export function Composer({ chatId }) {
  const mine = useUnsent(place());
  const { typed, chips, isSent, keep, setTyped, setChips } = mine;
  const queue = waitingIn(chatId);
  const file = useRef(/** @type {HTMLInputElement | null} */ (null));
  receive = (files) => add(files, setChips);
  const live = streaming();
  const { model, effort } = madeWith();
  const gone = isGone(model);
  const canSend = !gone && (typed.trim() !== "" || chips.length > 0);
  const onSend = useSending(mine, async () => {
    if (!canSend) return;
    const live = streaming(); // which may have ended since the last frame
    const message = { typed, chips };
    let asked = chatId;
    keep(NOTHING);
    if (live && stopping.has(live.id)) steered = chatId;
    if (live || sending.has(chatId)) return void queues.set(chatId, [...waitingIn(chatId), message]);
    sending.add(chatId);
    const isSent = await ask(chips, typed, (/** @type {number} */ made) => {
      sending.add((asked = made));
      begin(made);
    });
    for (const each of [chatId, asked]) sending.delete(each);
    if (!isSent) takeBack(asked, [message, ...waitingIn(asked)]);
    else if (asked !== null) void sendNext(asked); // its answer may have ended already
  });
  const sendNow = (/** @type {Unsent} */ message) => {
    if (!live || chatId === null) return;
    queues.set(chatId, [message, ...queue.filter((each) => each !== message)]);
    steered = chatId;
    void stop(live);
  };
  const loaded = state.loaded.find((each) => each.name === model);
  const context = contextText(shown(), loaded?.context_length ?? 0);
  const onFile = (/** @type {any} */ event) => [add(event.target.files, setChips), (event.target.value = "")];
  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    ${queue.length > 0 && html`<ul class="queue" aria-label="Waiting">
      ${queue.map((message) => html`<li><span dir="auto">${plain([...message.chips.map(({ label }) => label), message.typed].join(" "))}</span>
        <${IconButton} name="send" label="Send it now" onClick=${() => sendNow(message)} />
        <${IconButton} name="close" label="Take it back" onClick=${() => takeBack(chatId, [message])} /></li>`)}
    </ul>`}
    ${(queue.length > 0 || isSent) && html`<p class="hint" role="status">${isSent ? LATER : "sent when the answer is complete"}</p>`}
    <${Field} label=${gone ? `${model} was removed: choose another model` : model ? `Message ${model}` : "Choose a model first"} typed=${typed} setTyped=${setTyped}
      chips=${chips} setChips=${setChips} onSend=${onSend} focusOn=${state.visit}>
      <div class="composer-row">
        <${IconButton} name="clip" label="Attach files" onClick=${() => file.current?.click()} />
        <input ref=${file} class="hidden-file" type="file" multiple aria-label="Files" tabindex="-1"
          onChange=${onFile} />
        <${ToolButton} />
        <${ModelPicker} />
        <label class="effort" title="How long the model reasons"><span>Effort</span>
        <select aria-label="Effort" value=${effort} onChange=${into((chosen) => setModel(model, chosen))}>
          ${["low", "medium", "high"].map((each) => html`<option value=${each} selected=${each === effort}>${each}</option>`)}
        </select></label>
        <span class="space"></span>
        ${context.used > 0 &&
        html`<span class="context" role="img" aria-label=${`Context in use: ${context.words} tokens`}
          title=${`Context in use: ${context.words} tokens`}>
          <span class="ring" style=${{ "--share": context.share }}></span>
            <span class="words">ctx ${context.words}</span></span>`}
        ${live && canSend && html`<button type="button" class="send" aria-label="Send after the answer"
          title="Send after the answer (Enter)" onClick=${() => [toField(), onSend()]}>${icon("send")}</button>`}
        ${live
          ? html`<button type="button" class="send" aria-label="Stop" title="Stop (Esc)"
            onClick=${() => [toField(), stop(live)]}>${icon("stop")}</button>`
          : html`<button type="button" class="send" aria-label="Send" title="Send (Enter)" disabled=${!canSend || !chips.every(isRead)}
            onClick=${() => [toField(), onSend()]}>${icon("send")}</button>`}
      </div>
    <//>
  </form>`;
}

/** Where a question is edited. What is sent is another version of it. @param {{turn: Turn}} props */
export function Editor({ turn }) {
  const at = editOf(turn);
  const mine = useUnsent(at);
  const { typed, chips, isSent, setTyped, setChips } = mine;
  const leave = () => {
    unsent.delete(at);
    set({ editing: null });
    toField();
  };
  const onSend = useSending(mine, async () => {
    if (!typed.trim() && !chips.length) return;
    if (await askInstead(turn, chips, typed)) unsent.delete(at);
    else set({ editing: turn.id });
  });
  const onDrop = (/** @type {any} */ event) => event.dataTransfer.files.length && [event.preventDefault(), add(event.dataTransfer.files, setChips)];
  return html`<form class="editor" onDrop=${onDrop} onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Field} label="Edit your message" typed=${typed} setTyped=${setTyped} chips=${chips} setChips=${setChips}
      onSend=${onSend} onEscape=${leave} focusOn=${state.editing === turn.id}>
      <div class="composer-row"><span class="hint" role="status">${isSent ? LATER : "The version before stays."}</span><span class="space"></span>
        <button type="button" onClick=${leave}>Cancel</button>
        <button type="button" class="primary" onClick=${onSend}>Send</button></div>
    <//>
  </form>`;
}
