/** What all parts of the page are made of: icons, dialogs, menus, memory of what is painted. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { plain } from "./format.js";
import { state, set } from "./store.js";

export const SHOWN_MS = 1500; // that something was copied
export const HASTE_MS = 500; // what was meant for what was there before decides nothing
const NOTICE_MS = 8000;

const PATHS = /** @type {Record<string, string>} */ ({
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM20 20l-4-4",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  clip: "M8 12.5l6-6a3 3 0 0 1 4.2 4.2l-8 8a5 5 0 0 1-7-7l7.5-7.5",
  copy: "M9 9h10v11H9zM6 15H5V4h10v2",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  fork: "M6 4v10a4 4 0 0 0 4 4h8M14 14l4 4-4 4M6 9h8l4-4",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  upload: "M12 16V5M7 10l5-5 5 5M5 20h14",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  tool: "M14.5 6.5a4 4 0 0 0 5 5L11 20a2.500 2.500 0 0 1-3.500-3.500l8.500-8.500zM14.500 6.500L18 3",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18h.01",
  timer: "M12 7a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM12 10v4l2 2M9 3h6",
  check: "M5 12.5l4.500 4.500L19 7.500",
  close: "M6 6l12 12M18 6L6 18",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  expand: "M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5",
  down: "M12 5v14M6 13l6 6 6-6",
  pin: "M12 3l2.6 5.6 6 .8-4.4 4.2 1.1 6L12 16.700l-5.300 2.900 1.100-6L3.400 9.400l6-.8z",
  left: "M14 7l-5 5 5 5",
  right: "M10 7l5 5-5 5",
});

/** What is not needed for the first paint waits for it. */
export const afterPaint = new Promise((painted) => requestAnimationFrame(() => setTimeout(painted)));

/** Draw an icon. @param {string} name */
export const icon = (name) =>
  html`<svg class=${`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

/**
 * A button that is only an icon.
 * @param {{name: string, label: string, [other: string]: any}} props
 */
export const IconButton = ({ name, label, ...others }) =>
  html`<button type="button" class="icon-button" aria-label=${label} title=${label}
    ...${others}>${icon(name)}</button>`;

/**
 * Paint a component only if one of its properties is another one.
 * @template {object} P
 * @param {(props: P) => any} paint @returns {(props: P) => any}
 */
export function memo(paint) {
  /** @this {any} @param {any} props */
  return function (props) {
    this.shouldComponentUpdate = (/** @type {any} */ next) => Object.keys({ ...props, ...next }).some((name) => props[name] !== next[name]);
    return html`<${paint} ...${props} />`;
  };
}

/** Whether a key is for an input method. Safari tells of its last one as of a key by itself. @param {KeyboardEvent} event */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Have what is typed put somewhere. @param {(text: string) => any} put */
export const into = (put) => (/** @type {any} */ event) => put(event.target.value);

export const closeDialog = () => set({ dialog: null, notice: null });

let [closedMs, enteredMs] = [0, Infinity]; // a dialog, and by the last key: a second one would press the button that opened it
addEventListener("keydown", (/** @type {any} */ event) => {
  const isEnter = event.key === "Enter";
  if (isEnter && closedMs > enteredMs && event.timeStamp - closedMs < HASTE_MS && event.target.nodeName === "BUTTON") event.preventDefault();
  enteredMs = isEnter ? event.timeStamp : Infinity;
}, true);

/** Say what went wrong or happened, for a while. */
export function Notice() {
  const { notice, isLost } = state;
  useEffect(() => {
    if (!notice || notice.isError) return;
    const timer = setTimeout(() => set({ notice: null }), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [notice]);
  if (isLost) return html`<div class="notice error lost" role="alert"><div>The server does not answer. Trying again…</div></div>`;
  if (!notice) return null;
  return html`<div class=${notice.isError ? "notice error" : "notice"} role=${notice.isError ? "alert" : "status"}>
    <div>${withCode(notice.text)}${notice.hint && html`<span class="hint"> ${withCode(notice.hint)}</span>`}</div>
    <${IconButton} name="close" label="Dismiss" onClick=${() => set({ notice: null })} />
  </div>`;
}

/**
 * A dialog that keeps the focus until it is closed; `isKept` asks before a text that was typed is lost.
 * @param {{title: string, children?: any, size?: string, isKept?: boolean}} props
 */
export function Dialog({ title, children, size = "", isKept = false }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const before = useRef(/** @type {Map<any, string>} */ (new Map()));
  const [isAsking, setAsking] = useState(false);
  const keep = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => keep.current?.focus(), [isAsking]);
  const texts = () => {
    const fields = /** @type {any} */ (element.current).querySelectorAll("textarea, input:not([type=checkbox])");
    return Array.from(fields, (field) => /** @type {[any, string]} */ ([field, field.value]));
  };
  useLayoutEffect(() => {
    const dialog = /** @type {HTMLDialogElement} */ (element.current);
    const body = /** @type {any} */ (dialog.querySelector(".dialog-body"));
    dialog.showModal();
    if (!body.querySelector("a, button, input, select, textarea")) body.tabIndex = 0; // so keys can scroll it
    before.current = new Map(texts());
    return () => [dialog.close(), (closedMs = performance.now())]; // which gives the focus back
  }, []);
  const leave = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isKept || texts().every(([field, text]) => text === (before.current.get(field) ?? ""))) return closeDialog();
    [setAsking(true), keep.current?.focus()];
  };
  const onClose = () => element.current && closeDialog();
  const onMouseDown = (/** @type {MouseEvent} */ event) => event.target === element.current && leave(event);
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && !isComposing(event) && [event.stopPropagation(), leave(event)]; // not to stop an answer, too
  return html`<dialog ref=${element} class=${size} aria-labelledby="dialog-title" onClose=${onClose}
    onCancel=${leave} onMouseDown=${onMouseDown} onKeyDown=${onKeyDown}>
    <header><h2 id="dialog-title">${title}</h2><${IconButton} name="close" label="Close" onClick=${leave} /></header>
    ${isAsking &&
    html`<p class="leave" role="alert">Discard what you typed?
      <button type="button" class="danger" onClick=${closeDialog}>Discard</button>
      <button type="button" ref=${keep} onClick=${() => setAsking(false)}>Keep it</button></p>`}
    <${Notice} />
    <div class="dialog-body">${children}</div>
  </dialog>`;
}

/**
 * A popover that a button opens, and that is painted while it is open.
 * @param {(shown: HTMLElement, opener: DOMRect) => void} put  places it @param {string} first  what has the focus then
 */
export function usePopover(put, first) {
  const [isOpen, setOpen] = useState(false);
  const list = useRef(/** @type {any} */ (null));
  const button = useRef(/** @type {any} */ (null));
  const show = () => {
    button.current.popoverTargetElement = list.current; // a click there is not one outside
    list.current.showPopover();
    put(list.current, button.current.getBoundingClientRect());
    list.current.querySelector(first)?.focus();
  };
  useLayoutEffect(() => void (isOpen && show()), [isOpen]);
  const onClick = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (list.current?.matches(":popover-open")) list.current.hidePopover();
    else if (isOpen) show(); // what closed it has not been told yet
    else setOpen(true);
  };
  const onToggle = (/** @type {ToggleEvent} */ event) => {
    if (event.newState === "open") return;
    if (list.current?.contains(document.activeElement)) button.current.focus();
    setOpen(false);
  };
  return { isOpen, list, button, onClick, onToggle };
}

/** @param {HTMLElement} shown @param {DOMRect} opener */
function putBelow(shown, { right, bottom }) {
  const { offsetWidth, offsetHeight } = shown;
  shown.style.left = `${Math.max(8, Math.min(right - offsetWidth, innerWidth - offsetWidth - 8))}px`;
  shown.style.top = `${Math.min(bottom + 4, innerHeight - offsetHeight - 8)}px`;
}

/**
 * A button that opens a list of actions.
 * @param {{label: string, actions: [label: string, act: () => void][], icon?: string}} props
 */
export function Menu({ label, actions, icon: name = "more" }) {
  const { isOpen, list, button, onClick, onToggle } = usePopover(putBelow, "button");
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...list.current.querySelectorAll("button")];
    const now = items.findIndex((item) => item === document.activeElement);
    items[(now + step + items.length) % items.length]?.focus();
  };
  return html`<span class="menu-place">
    <button ref=${button} type="button" class="icon-button" aria-label=${label} title=${label} aria-haspopup="menu"
      aria-expanded=${isOpen} onClick=${onClick}>${icon(name)}</button>
    ${isOpen &&
    html`<div ref=${list} class="menu" role="menu" popover="auto" aria-label=${label} onToggle=${onToggle}
      onKeyDown=${onKeyDown}>
      ${actions.map(
        ([name, act]) =>
          html`<button type="button" role="menuitem"
            onClick=${() => [list.current?.hidePopover(), act()]}>${name}</button>`,
      )}
    </div>`}
  </span>`;
}

/** Copy a text, also as HTML, and say so. @param {string} text @param {string} [rich] */
export async function copyText(text, rich = "") {
  const forms = Object.entries({ "text/plain": text, ...(rich && { "text/html": rich }) });
  try {
    await navigator.clipboard.write([new ClipboardItem(Object.fromEntries(forms))]);
  } catch {
    const put = (/** @type {ClipboardEvent} */ event) => {
      event.preventDefault();
      event.stopImmediatePropagation();
      for (const [type, words] of forms) event.clipboardData?.setData(type, words);
    };
    const area = document.createElement("textarea"); // another machine without TLS has no clipboard
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    addEventListener("copy", put, { capture: true, once: true });
    document.execCommand("copy");
    removeEventListener("copy", put, true);
    area.remove();
  }
  set({ spoken: "Copied." });
}

/** A button that copies, and shows that it did. @param {{label: string, copy: () => Promise<void>}} props */
export function CopyButton({ label, copy }) {
  const [isDone, setDone] = useState(false);
  const onClick = () => copy().then(() => [setDone(true), setTimeout(() => setDone(false), SHOWN_MS)]);
  return html`<${IconButton} name=${isDone ? "check" : "copy"} label=${label} onClick=${onClick} />`;
}

/** A text with the code in it that is between backticks. @param {string} text */
export const withCode = (text) =>
  text.split(/`([^`\n]+)`/).map((part, k) => (k % 2 ? html`<code>${plain(part)}</code>` : plain(part)));
