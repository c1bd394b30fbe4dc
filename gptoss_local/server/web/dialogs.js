/** Small dialogs: rename, delete, the API key, help. */

import { html, useState } from "./vendor/preact.js";
import { change, remove } from "./actions.js";
import { call, keepKey, takesKeys } from "./api.js";
import { set, state } from "./store.js";
import { closeDialog, Dialog, into } from "./ui.js";
import { Models } from "./models.js";
export { First, Offer } from "./models.js";
import { Compare } from "./transcript.js";
import { Settings } from "./settings.js";
import { Tools } from "./toolbox.js";

/** @param {{chat: Chat, kind: "title" | "folder"}} props */
function Naming({ chat, kind }) {
  const [text, setText] = useState(chat[kind]);
  const folders = kind === "folder" && [...new Set(state.chats.map((each) => each.folder))].filter(Boolean);
  const [label, verb] = folders ? ["Folder", "Move"] : ["Title", "Rename"];
  const onSubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await change(chat, { [kind]: text })) closeDialog();
  };
  return html`<${Dialog} title=${`${verb} the chat`}><form onSubmit=${onSubmit}>
    <label>${label}<input type="text" dir="auto" autofocus list=${folders ? "folders" : undefined} autocomplete="off" value=${text} onInput=${into(setText)} /></label>
    ${folders && html`<datalist id="folders">${folders.map((name) => html`<option value=${name} />`)}</datalist>
    <p class="hint">A new name makes a folder, an empty one takes the chat out.</p>`}
    <footer><button type="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="primary">${verb}</button></footer>
  </form><//>`;
}

/** @param {{chat: Chat}} props */
function Delete({ chat }) {
  return html`<${Dialog} title="Delete this chat?">
    <p>“<bdi>${chat.title || "Untitled"}</bdi>” and all its versions are removed, in the terminal chat, too. This cannot be undone.</p>
    <footer><button type="button" autofocus onClick=${closeDialog}>Cancel</button>
      <button type="button" class="danger" onClick=${async () => (await remove(chat)) && closeDialog()}>Delete</button></footer>
  <//>`;
}

/** A command to copy. @param {{text: string}} props */
const Command = ({ text }) => html`<div class="command"><code>${text}</code><button type="button" class="copy" aria-label=${`Copy ${text}`}>Copy</button></div>`;

/** @param {{onKey: () => void, why: string}} props */
function Key({ onKey, why }) {
  const [key, setKey] = useState("");
  const onSubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    keepKey(key.trim());
    set({ dialog: null });
    onKey();
  };
  return html`<${Dialog} title="Open the page from a terminal">
    <p role="alert">${why}</p>
    <p>On the server's machine, this lets a browser in:</p><${Command} text="gptoss web" />
    <p>And this a phone:</p><${Command} text="gptoss web --lan" />
    ${takesKeys && html`<form onSubmit=${onSubmit}>
    <p>Or enter the owner's key, set as <code>GPTOSS_API_KEY</code> where the server was started. This browser will remember it.</p>
    <label>Key<input type="password" autofocus autocomplete="off" value=${key} onInput=${into(setKey)} /></label>
    <footer><button type="submit" class="primary" disabled=${!key.trim()}>Continue</button></footer>
  </form>`}<//>`;
}

/** @param {{onKey: () => void}} props */
function Unlock({ onKey }) {
  const [passphrase, setPassphrase] = useState("");
  const [problem, setProblem] = useState("");
  const onSubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await call("POST", "/api/gptoss/chats/unlock", { passphrase });
    } catch (error) {
      return setProblem(/** @type {Error} */ (error).message);
    }
    set({ dialog: null });
    onKey();
  };
  return html`<${Dialog} title="Unlock the chats"><form onSubmit=${onSubmit}>
    <p>Saved chats are encrypted. They stay unlocked until the server stops; a temporary chat needs no passphrase.</p>
    ${problem && html`<p class="wrong" role="alert">${problem}</p>`}
    <label>Passphrase<input type="password" autofocus autocomplete="off" value=${passphrase} onInput=${into(setPassphrase)} /></label>
    <footer><button type="button" onClick=${closeDialog}>Not now</button>
      <button type="submit" class="primary" disabled=${!passphrase}>Unlock</button></footer>
  </form><//>`;
}

const KEYS = [
  ["Enter", "send; while it answers, after the answer"],
  ["Shift+Enter", "new line"],
  ["Esc", "stop the answer; leave an edit"],
  ["↑ in an empty field", "edit your last message"],
  ["Alt+N", "new chat"],
  ["Ctrl+K or ⌘K", "search all chats"],
  ["/", "to the message field"],
  ["Ctrl+/ or ⌘/, or ?", "this help"],
];

const Help = () => html`<${Dialog} title="Help">
  <table class="keys"><caption>Keys</caption>
    <tbody>${KEYS.map(([key, words]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${words}</td></tr>`)}</tbody></table>
  <p>Drop text files, PDFs and Word documents anywhere, or paste them. A paste over 2,000 characters becomes a file.</p>
  <p>Edits and new answers overwrite nothing: <b>‹ 2/3 ›</b> shows the other versions.</p>
  <p>Chats are in <code>chats.sqlite3</code> on the machine that runs the server. ${state.chat && html`In a terminal, <code>gptoss chat --chat ${state.chat.id}</code> continues this one.`}</p>
<//>`;

const DIALOGS = { title: Naming, folder: Naming, delete: Delete, key: Key, unlock: Unlock, compare: Compare, models: Models, settings: Settings, tools: Tools, help: Help };

/** Paint the dialog that is open. @param {{dialog: Dialog | null, onKey: () => void}} props */
export const OpenDialog = ({ dialog, onKey }) => dialog && html`<${DIALOGS[dialog.kind]} key=${dialog.kind} ...${dialog} onKey=${onKey} />`;
