/** Where messages are written: text, files as chips, the model and its effort. */

import { html, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { ask, askInstead, madeWith, setModel, shown, stop, streaming } from "./actions.js";
import { foldPaste, readFile, withTokens } from "./attach.js";
import { plain } from "./format.js";
import { fail, isTemporary, set, state } from "./store.js";
import { ToolButton } from "./toolbox.js";
import { contextText, takeApart } from "./tree.js";
import { icon, IconButton } from "./ui.js";
import { isGone, ModelPicker } from "./picker.js";

/** @typedef {import("./types").Chip} Chip */
/** @typedef {import("./types").Turn} Turn */

const EFFORTS = ["low", "medium", "high"];

const UNSENT = "gptoss-unsent";

/**
 * What was typed and not sent, by chat; the tab keeps it when the page is loaded again, but for temporary chats.
 * @type {Map<number | string | null, {typed: string, chips: Chip[]}>}
 */
const unsent = new Map(JSON.parse(sessionStorage.getItem(UNSENT) ?? "[]"));
addEventListener("pagehide", () => {
  for (const draft of unsent.values()) draft.chips = draft.chips.filter(isRead);
  const drafts = [...unsent].filter(([at, { typed, chips }]) => at !== TEMPORARY && (typed || chips.length));
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
const NOTHING = { typed: "", chips: /** @type {Chip[]} */ ([]) };

/** Take files that were dropped anywhere on the page. @type {(files: Iterable<File>) => void} */
export let receive = () => {};

/** Edit the last question of the branch. */
export function editLast() {
  const last = shown().findLast((turn) => turn.role === "user");
  if (last && !streaming()) set({ editing: last.id });
}

/**
 * A field that grows, and the files above it.
 * @param {{label: string, typed: string, setTyped: (text: string) => void, chips: Chip[],
 *   setChips: (change: (chips: Chip[]) => Chip[]) => void, onSend: () => void, onEscape?: () => void,
 *   focusOn?: number | null, children?: any}} props
 */
function Field({ label, typed, setTyped, chips, setChips, onSend, onEscape, focusOn, children }) {
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [typed]);
  useLayoutEffect(() => {
    if (onEscape || matchMedia("(pointer: fine)").matches) area.current?.focus();
    area.current?.setSelectionRange(typed.length, typed.length);
  }, [focusOn]);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing) return;
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
      onKeyDown=${onKeyDown} onPaste=${onPaste}
      onInput=${(/** @type {any} */ event) => setTyped(event.target.value)}></textarea>
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

/** Where a new message is written. @param {{chatId: number | null}} props */
export function Composer({ chatId }) {
  const [, again] = useState(0);
  const shownIn = place();
  const { typed, chips } = unsent.get(shownIn) ?? NOTHING;
  const keep = (/** @type {Partial<typeof NOTHING>} */ changes, where = place()) => {
    unsent.set(where, { ...(unsent.get(where) ?? NOTHING), ...changes });
    again((/** @type {number} */ n) => n + 1);
  };
  const setTyped = (/** @type {string} */ text) => keep({ typed: text });
  const setChips = (/** @type {(chips: Chip[]) => Chip[]} */ change) => keep({ chips: change(unsent.get(shownIn)?.chips ?? []) }, shownIn);
  const file = useRef(/** @type {HTMLInputElement | null} */ (null));
  receive = (files) => add(files, setChips);
  const live = streaming();
  const { model, effort } = madeWith();
  const gone = isGone(model);
  const canSend = !live && !gone && chips.every(isRead) && (typed.trim() !== "" || chips.length > 0);
  const onSend = async () => {
    if (!canSend) return;
    keep(NOTHING);
    if (!(await ask(chips, typed))) keep({ typed, chips });
  };
  const loaded = state.loaded.find((each) => each.name === model);
  const context = contextText(shown(), loaded?.context_length ?? 0);
  const onFile = (/** @type {any} */ event) => [add(event.target.files, setChips), (event.target.value = "")];
  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Field} label=${gone ? `${model} was removed: choose another model` : model ? `Message ${model}` : "Choose a model first"} typed=${typed} setTyped=${setTyped}
      chips=${chips} setChips=${setChips} onSend=${onSend} focusOn=${chatId}>
      <div class="composer-row">
        <${IconButton} name="clip" label="Attach files" onClick=${() => file.current?.click()} />
        <input ref=${file} class="hidden-file" type="file" multiple aria-label="Files" tabindex="-1"
          onChange=${onFile} />
        <${ToolButton} />
        <${ModelPicker} />
        <label class="effort" title="How long the model reasons"><span>Effort</span>
        <select aria-label="Effort" value=${effort}
          onChange=${(/** @type {any} */ event) => setModel(model, event.target.value)}>
          ${EFFORTS.map((each) => html`<option value=${each} selected=${each === effort}>${each}</option>`)}
        </select></label>
        <span class="space"></span>
        ${context.used > 0 &&
        html`<span class="context" role="img" aria-label=${`Context in use: ${context.words} tokens`}
          title=${`Context in use: ${context.words} tokens`}>
          <span class="ring" style=${{ "--share": context.share }}></span>
            <span class="words">ctx ${context.words}</span></span>`}
        ${live
          ? html`<button type="button" class="send" aria-label="Stop" title="Stop (Esc)"
            onClick=${() => stop(live)}>${icon("stop")}</button>`
          : html`<button type="button" class="send" aria-label="Send" title="Send (Enter)" disabled=${!canSend}
            onClick=${onSend}>${icon("send")}</button>`}
      </div>
    <//>
  </form>`;
}

/** Where a question is edited. What is sent is another version of it. @param {{turn: Turn}} props */
export function Editor({ turn }) {
  const [before] = useState(() => takeApart(turn));
  const [typed, setTyped] = useState(before.typed);
  const [chips, setChips] = useState(before.chips);
  const leave = () => {
    set({ editing: null });
    /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus();
  };
  const onSend = () => void ((typed.trim() || chips.length) && chips.every(isRead) && askInstead(turn, chips, typed));
  return html`<form class="editor" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${Field} label="Edit your message" typed=${typed} setTyped=${setTyped} chips=${chips} setChips=${setChips}
      onSend=${onSend} onEscape=${leave}>
      <div class="composer-row"><span class="hint">The version before stays.</span><span class="space"></span>
        <button type="button" onClick=${leave}>Cancel</button>
        <button type="button" class="primary" onClick=${onSend}>Send</button></div>
    <//>
  </form>`;
}
