/** The page: starts it, lays it out, and listens to keys, drops and the address. */

import { html, render, useLayoutEffect, useState } from "./vendor/preact.js";
import { chatActions, Sidebar } from "./sidebar.js";
import { madeWith, readFits, readModels, route, go, shown, stop, streaming, switchTemporary, tryOut } from "./actions.js";
import { ApiError, isUnknown, openLink, whenLetIn } from "./api.js";
import { Composer, receive } from "./composer.js";
import { goesWhere, hostOf } from "./picker.js";
import { connect, disconnect, fail, isTemporary, notLoaded, rest, set, state, watch } from "./store.js";
import { PreviewPane } from "./preview.js";
import { Transcript } from "./transcript.js";
import { canDraw, drawing } from "./turn.js";
import { afterPaint, closeDialog, IconButton, Menu, Notice } from "./ui.js";

const INPUT = ".composer textarea";
const NARROW = matchMedia("(width < 50rem), (height < 28rem)"); // as style.css has it
const TRY = ["What is the capital of Japan?", "What is 123 + 456?", "Count from 1 to 10."]; // nano can

/** Parts that are loaded after the first paint. @type {typeof import("./dialogs.js") | undefined} */
let later;
const loading = afterPaint.then(() => import("./dialogs.js")).then((dialogs) => [(later = dialogs), set({})]).catch(notLoaded);

function App() {
  const { chat, chats, chatId, query, hits, dialog, isSidebarOpen, isLocked, spoken, nSpoken, draft, preview, answering, unseen } = state;
  const [, count] = useState(0);
  useLayoutEffect(() => watch(() => count((/** @type {number} */ n) => n + 1)), []); // misses no change
  const isEmpty = (chatId === null || chat?.leaf_id === null) && !shown().length;
  const host = hostOf(madeWith().model);
  const asked = chatId === null ? draft.preset || (draft.system && "with a system prompt") : chat?.preset;
  return html`<button type="button" class="skip" onClick=${() => focusOn(INPUT)}>Skip to the message</button>
    <${Sidebar} chats=${chats} chatId=${chatId} query=${query} hits=${hits} answering=${answering} unseen=${unseen} isOpen=${isSidebarOpen} isLocked=${isLocked} />
    ${isSidebarOpen && html`<div class="shade" onClick=${() => set({ isSidebarOpen: false })}></div>`}
    <main class=${isTemporary() ? "temporary" : ""}>
      <header class="chat-head">
        <${IconButton} name="menu" label="Chats" class="icon-button"
          onClick=${() => (NARROW.matches ? set({ isSidebarOpen: true }) : fold(document.documentElement.classList.toggle("wide")))} />
        <h1 dir="auto">${isTemporary() ? "Temporary chat" : chatId === null ? "New chat" : chat?.title || "Untitled"}</h1>
        ${isTemporary() && html`<span class="preset">not kept</span>`}
        ${host && html`<span class="preset" title=${`Computed at ${host}`}>at ${host}</span>`}
        ${chatId === null && html`<${IconButton} name="timer" label="Temporary chat" aria-pressed=${isTemporary()}
          onClick=${switchTemporary} />`}
        ${asked && html`<span class="preset">${asked}</span>`}
        <${IconButton} name="sliders" label="System prompt and sampling"
          onClick=${() => set({ dialog: { kind: "settings" } })} />
        ${chat && html`<${Menu} label="Actions for this chat" actions=${chatActions(chat)} />`}
      </header>
      ${isEmpty ? html`<${Welcome} />` : html`<${Transcript} />`}
      <div class="dock">${!(dialog && later) && html`<${Notice} />`}${later && !isEmpty && html`<${later.Offer} />`}<${Composer} chatId=${chatId} />
        ${host && html`<p class="goes">Computed at ${host}</p>`}</div>
    </main>
    ${preview && html`<${PreviewPane} preview=${preview} />`}
    ${later && html`<${later.OpenDialog} dialog=${dialog} onKey=${start} />`}
    <p class="spoken" role="status" aria-live="polite"><span key=${nSpoken}>${spoken}</span></p>`;
}

const Welcome = () => html`<div class="welcome">
  <h2>What can I help with?</h2>
  ${isTemporary() && html`<p>This chat is kept nowhere: it ends when you leave it or reload the page.</p>`}
  <p>${goesWhere()} Drop a file here, or just ask.</p>
  <p class="hint">The same chats are in the terminal: <code>gptoss chat</code>.<span class="keys"> Press <kbd>Ctrl</kbd> <kbd>/</kbd> for the keys.</span></p>
  ${later && html`<${later.First} />`}
  ${madeWith().model === "nano" && html`<ul class="try" aria-label="Try it">${TRY.map((text) => html`<li><button type="button"
    onClick=${() => tryOut(text)}>${text}</button></li>`)}</ul>`}
</div>`;

/** Keep whether the list of chats is folded. @param {boolean} isFolded */
const fold = (isFolded) => (isFolded ? localStorage.setItem("gptoss-folded", "yes") : localStorage.removeItem("gptoss-folded"));

/** @param {KeyboardEvent} event */
function onKey(event) {
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  const isModified = event.ctrlKey || event.metaKey || event.altKey;
  const live = streaming();
  const front = /** @type {HTMLElement | null} */ (document.querySelector(":popover-open:not(.peek)")); // it closes by Esc
  if (document.querySelector("dialog[open]")) return;
  if ((event.ctrlKey || event.metaKey) && event.code === "KeyK") {
    [front?.hidePopover(), set({ isSidebarOpen: NARROW.matches })];
    fold(false);
    document.documentElement.classList.remove("wide");
    focusOn("#search");
  } else if (event.altKey && event.code === "KeyN") {
    [front?.hidePopover(), go(null)];
    focusOn(INPUT);
  } else if ((event.ctrlKey || event.metaKey) && event.code === "KeyP" && !canDraw()) void drawing.then(() => setTimeout(print));
  else if (event.key === "Escape" && front) return;
  else if (event.key === "Escape" && state.dialog) closeDialog(); // which has not been loaded yet
  else if (event.key === "Escape" && state.isSidebarOpen) set({ isSidebarOpen: false });
  else if (event.key === "Escape" && live) void stop(live);
  else if (!front && ((event.key === "?" && !isTyping && !isModified) || (event.key === "/" && (event.ctrlKey || event.metaKey)))) set({ dialog: { kind: "help" } });
  else if (event.key === "/" && !isTyping && !isModified && !front) focusOn(INPUT);
  else return;
  event.preventDefault();
}

/** Focus an element now, or once it is painted, unless the user has gone elsewhere. @param {string} selector */
function focusOn(selector) {
  const focus = () => /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus();
  focus();
  const here = [document.activeElement, document.body];
  requestAnimationFrame(() => requestAnimationFrame(() => here.includes(document.activeElement) && focus()));
}

/** @param {DragEvent} event */
function onDrag(event) {
  if (!event.dataTransfer?.types.includes("Files")) return;
  if (event.type === "drop" && !event.defaultPrevented) receive([...event.dataTransfer.files]);
  event.preventDefault();
  document.body.classList.toggle("dropping", event.type === "dragover");
}

async function start() {
  let why = "The server does not know this browser yet.";
  try {
    await openLink();
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) fail(error);
    why = "This link of gptoss web has been used, or is older than an hour.";
  }
  if (isUnknown()) return set({ dialog: { kind: "key", why } });
  if (state.dialog?.kind === "key") set({ dialog: null });
  await Promise.all([readFits(), readModels(), route(true), loading]);
}

addEventListener("hashchange", () => void (location.hash.startsWith("#open=") ? start() : route()));
whenLetIn(() => void start());
addEventListener("keydown", onKey);
for (const type of ["dragover", "dragleave", "drop"]) addEventListener(type, /** @type {any} */ (onDrag));
addEventListener("pagehide", disconnect);
document.addEventListener("visibilitychange", () => (document.hidden ? rest() : isUnknown() || void connect()));

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
void start();
