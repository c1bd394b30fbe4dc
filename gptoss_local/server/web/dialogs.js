/** Small dialogs: rename, delete, the API key, help. */

import { html, useState } from "./vendor/preact.js";
import { change, remove } from "./actions.js";
import { call, keepKey, takesKeys } from "./api.js";
import { set, state } from "./store.js";
import { closeDialog, copyText, Dialog } from "./ui.js";
import { Models } from "./models.js";
export { First, Offer } from "./models.js";
import { Compare } from "./transcript.js";
import { Settings } from "./settings.js";
import { Tools } from "./toolbox.js";

/** @typedef {import("./types").Chat} Chat */

/** Paint the dialog that is open. @param {{dialog: import("./types").Dialog | null, onKey: () => void}} props */
export function OpenDialog({ dialog, onKey }) {
  if (!dialog) return null;
  if (dialog.kind === "rename") return html`<${Rename} chat=${dialog.chat} />`;
  if (dialog.kind === "move") return html`<${Move} chat=${dialog.chat} />`;
  if (dialog.kind === "delete") return html`<${Delete} chat=${dialog.chat} />`;
  if (dialog.kind === "key") return html`<${Key} onKey=${onKey} why=${dialog.why} />`;
  if (dialog.kind === "compare") return html`<${Compare} turn=${dialog.turn} />`;
  if (dialog.kind === "unlock") return html`<${Unlock} onKey=${onKey} />`;
  return html`<${{ models: Models, settings: Settings, tools: Tools, help: Help }[dialog.kind]} />`;
}

/** @param {{chat: Chat}} props */
function Rename({ chat }) {
  const [title, setTitle] = useState(chat.title);
  const onSubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await change(chat, { title })) closeDialog();
  };
  return html`<${Dialog} title="Rename the chat"><form onSubmit=${onSubmit}>
    <label>Title<input type="text" autofocus value=${title}
      onInput=${(/** @type {any} */ event) => setTitle(event.target.value)} /></label>
    <footer><button type="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="primary">Rename</button></footer>
  </form><//>`;
}

/** @param {{chat: Chat}} props */
function Move({ chat }) {
  const [folder, setFolder] = useState(chat.folder);
  const known = [...new Set(state.chats.map((each) => each.folder))].filter(Boolean);
  const onSubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await change(chat, { folder })) closeDialog();
  };
  return html`<${Dialog} title="Move the chat"><form onSubmit=${onSubmit}>
    <label>Folder<input type="text" autofocus list="folders" autocomplete="off" value=${folder}
      onInput=${(/** @type {any} */ event) => setFolder(event.target.value)} /></label>
    <datalist id="folders">${known.map((name) => html`<option value=${name} />`)}</datalist>
    <p class="hint">A new name makes a folder, an empty one takes the chat out.</p>
    <footer><button type="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="primary">Move</button></footer>
  </form><//>`;
}

/** @param {{chat: Chat}} props */
function Delete({ chat }) {
  const confirm = async () => {
    if (await remove(chat)) closeDialog();
  };
  return html`<${Dialog} title="Delete this chat?">
    <p>“${chat.title || "Untitled"}” and all its versions are removed, in the terminal chat, too. This cannot be undone.</p>
    <footer><button type="button" autofocus onClick=${closeDialog}>Cancel</button>
      <button type="button" class="danger" onClick=${confirm}>Delete</button></footer>
  <//>`;
}

/** A command to copy. @param {{text: string}} props */
function Command({ text }) {
  const [isCopied, setCopied] = useState(false);
  return html`<div class="command"><code>${text}</code><button type="button" aria-label=${`${isCopied ? "Copied" : "Copy"} ${text}`}
    onClick=${() => copyText(text).then(() => setCopied(true))}>${isCopied ? "Copied" : "Copy"}</button></div>`;
}

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
    <label>Key<input type="password" autofocus autocomplete="off" value=${key}
      onInput=${(/** @type {any} */ event) => setKey(event.target.value)} /></label>
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
    <label>Passphrase<input type="password" autofocus autocomplete="off" value=${passphrase}
      onInput=${(/** @type {any} */ event) => setPassphrase(event.target.value)} /></label>
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
