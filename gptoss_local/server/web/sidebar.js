/** The list of chats, and the search in all of them. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { change, exportChat, go, HITS, importChats, listMore, search } from "./actions.js";
import { age } from "./format.js";
import { set, state } from "./store.js";
import { icon, IconButton, isComposing, memo, Menu } from "./ui.js";

const SEARCH_DELAY_MS = 120;
const NEAR = 200; // pixels from the end at which more chats are listed
const THEMES = ["system", "light", "dark"];

export const Sidebar = memo(
  /**
   * @param {{chats: Chat[], chatId: number | null, query: string, hits: Hit[], answering: number[], unseen: Set<number>, isOpen: boolean, isLocked: boolean}} props
   */
  ({ chats, chatId, query, hits, answering, unseen, isOpen, isLocked }) => html`<nav class=${`sidebar ${isOpen ? "open" : ""}`} aria-label="Chats" onKeyDown=${walk}>
    <div class="sidebar-head">
      <span class="brand">gptoss</span>
      <${IconButton} name="close" label="Close the list" class="icon-button narrow"
        onClick=${() => set({ isSidebarOpen: false })} />
    </div>
    <button type="button" class="new" onClick=${() => go(null)} title="Alt+N">${icon("plus")} New chat</button>
    <${Search} />
    ${query.trim() ? html`<${Hits} hits=${hits} />` : html`<${Chats} chats=${chats} chatId=${chatId} answering=${answering} unseen=${unseen} isLocked=${isLocked} />`}
    <${Foot} />
  </nav>`,
);

/** Move from the search through the chats by arrows. @param {KeyboardEvent} event */
function walk(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const places = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("#search, .chats a")];
  const next = /** @type {HTMLElement | undefined} */ (places[places.indexOf(/** @type {Element} */ (event.target)) + (step ?? 0)]);
  if (!step || !places.includes(/** @type {Element} */ (event.target)) || !next) return;
  event.preventDefault();
  next.focus();
}

function Search() {
  const timer = useRef(0);
  const find = (/** @type {string} */ words, delayMs = 0) => {
    clearTimeout(timer.current);
    if (!delayMs) return search(words);
    timer.current = setTimeout(() => void search(words), delayMs);
  };
  const onKeyDown = async (/** @type {any} */ event) => {
    const [{ key, target }, words] = [event, event.target.value];
    const isGoing = key === "Enter" || (key === "ArrowDown" && words !== state.query); // to what is found then
    if (!words || isComposing(event) || !(isGoing || key === "Escape")) return;
    event.preventDefault();
    event.stopPropagation();
    if (key === "Escape") target.value = "";
    await find(target.value);
    const first = /** @type {HTMLElement | null} */ (document.querySelector(".hits a"));
    if (isGoing) key === "Enter" ? first?.click() : first?.focus();
  };
  return html`<label class="search">${icon("search")}
    <input id="search" type="search" placeholder="Search all chats" aria-label="Search all chats" autocomplete="off"
      onKeyDown=${onKeyDown} onInput=${(/** @type {any} */ event) => find(event.target.value, SEARCH_DELAY_MS)} />
  </label>`;
}

/** @param {{chats: Chat[], chatId: number | null, answering: number[], unseen: Set<number>, isLocked: boolean}} props */
function Chats({ chats, chatId, answering, unseen, isLocked }) {
  if (isLocked) return html`<div class="empty-list"><p>Saved chats are locked.</p>
    <button type="button" onClick=${() => set({ dialog: { kind: "unlock" } })}>Unlock</button></div>`;
  if (!chats.length) return html`<p
    class="empty-list">Your chats will be listed here. <code>gptoss chat</code> has the same ones.</p>`;
  /** @type {[string, Chat[]][]} */
  const groups = [];
  const rank = (/** @type {Chat} */ chat) => (chat.is_pinned ? 0 : chat.folder ? 1 : 2);
  const listed = [...chats].sort((a, b) => rank(a) - rank(b) || (rank(a) === 1 ? a.folder.localeCompare(b.folder) : 0));
  for (const chat of listed) {
    const name = chat.is_pinned ? "Pinned" : chat.folder || age(chat.updated_s);
    if (groups.at(-1)?.[0] !== name) groups.push([name, []]);
    groups.at(-1)?.[1].push(chat);
  }
  const counts = new Map();
  for (const { is_pinned, folder } of chats) if (!is_pinned) counts.set(folder, (counts.get(folder) ?? 0) + 1);
  const hasMore = Math.max(0, ...counts.values()) >= state.nChats;
  const onScroll = (/** @type {any} */ { target }) =>
    hasMore && target.scrollHeight - target.scrollTop - target.clientHeight < NEAR && listMore();
  const mark = (/** @type {number} */ id) => (answering.includes(id) ? "Answering" : unseen.has(id) ? "New answer" : "");
  return html`<div class="chats" onScroll=${onScroll}>
    ${groups.map(
      ([name, members]) => html`<section key=${name} aria-label=${name}><h2 dir="auto">${name}</h2>
        <ul>${members.map((chat) => html`<${Row} key=${chat.id} chat=${chat} isOpen=${chat.id === chatId} mark=${mark(chat.id)} />`)}</ul>
      </section>`,
    )}
    ${hasMore && html`<button type="button" class="more" onClick=${listMore}>Show more</button>`}
  </div>`;
}

/** List what can be done with a chat. @param {Chat} chat @returns {[string, () => void][]} */
export const chatActions = (chat) => [
  ["Rename", () => set({ dialog: { kind: "title", chat } })],
  ["Move to a folder", () => set({ dialog: { kind: "folder", chat } })],
  [chat.is_pinned ? "Unpin" : "Pin to the top", () => void change(chat, { is_pinned: !chat.is_pinned })],
  ["Export as Markdown", () => void exportChat(chat, "markdown")],
  ["Export as JSON", () => void exportChat(chat, "json")],
  ["Delete", () => set({ dialog: { kind: "delete", chat } })],
];

const Row = memo(
  /** @param {{chat: Chat, isOpen: boolean, mark: string}} props */
  ({ chat, isOpen, mark }) => html`<li class=${isOpen ? "row current" : "row"}>
    <a href=${`#/chat/${chat.id}`} dir="auto" aria-current=${isOpen ? "page" : null}
      onClick=${() => set({ isSidebarOpen: false })}>
      ${chat.is_pinned && html`<span class="pinned" title="Pinned">${icon("pin")}</span>`}${chat.title || "Untitled"}
    </a>
    ${mark && html`<span class=${mark === "Answering" ? "dot on busy" : "dot on"} role="img" aria-label=${mark} title=${mark}></span>`}
    <${Menu} label=${`Actions for ${chat.title || "Untitled"}`} actions=${chatActions(chat)} />
  </li>`,
);

/** @param {{hits: Hit[]}} props */
function Hits({ hits }) {
  if (!hits.length) return html`<p class="empty-list">Nothing found.</p>`;
  return html`<ul class="chats hits" aria-label="Found">
    ${hits.map(
      ({ chat_id, turn_id, title, snippet, created_s }) => html`<li class="row">
        <a href=${`#/chat/${chat_id}${turn_id ? `/${turn_id}` : ""}`} onClick=${() => set({ isSidebarOpen: false })}>
          <strong dir="auto">${title || "Untitled"}</strong><time>${new Date(1000 * created_s).toLocaleDateString()}</time><span dir="auto">${marked(snippet)}</span>
        </a>
      </li>`,
    )}
    ${state.hasMoreHits && html`<li><button type="button" class="more"
      onClick=${() => search(state.query, hits.length + HITS)}>Show more</button></li>`}
  </ul>`;
}

/** Show the matches of a snippet, which stand between two control characters. @param {string} snippet */
function marked(snippet) {
  return snippet.split("\x02").flatMap((part, k) => {
    const [match, ...rest] = k ? part.split("\x03") : ["", part];
    return [match && html`<mark>${match}</mark>`, rest.join("")];
  });
}

function Foot() {
  const [theme, setTheme] = useState(localStorage.getItem("gptoss-theme") ?? "system");
  const file = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    localStorage.setItem("gptoss-theme", theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  useEffect(() => addEventListener("storage", ({ key, newValue }) => key === "gptoss-theme" && setTheme(newValue ?? "system")), []); // of another tab
  const onFile = (/** @type {any} */ { target }) => [target.files[0] && importChats(target.files[0]), (target.value = "")];
  return html`<div class="foot">
    <button type="button"
      onClick=${() => set({ isSidebarOpen: false, dialog: { kind: "models" } })}>${icon("chip")} Models</button>
    <button type="button" onClick=${() => file.current?.click()}>${icon("upload")} Import chats</button>
    <input ref=${file} class="hidden-file" type="file" accept=".json,.zip" aria-label="A chat to import" tabindex="-1"
      onChange=${onFile} />
    <div class="themes" role="group" aria-label="Theme">${icon("theme")}${THEMES.map((each) => html`<button type="button"
      aria-pressed=${each === theme} onClick=${() => setTheme(each)}>${each[0]?.toUpperCase() + each.slice(1)}</button>`)}</div>
    <button type="button"
      onClick=${() => set({ isSidebarOpen: false, dialog: { kind: "help" } })}>${icon("help")} Help<kbd>Ctrl /</kbd></button>
  </div>`;
}
