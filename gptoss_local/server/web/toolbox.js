/** The tools of the open chat: which are on, and the switches. The model asks before each call. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { addServer, madeWith, readTools, removeServer, setTools } from "./actions.js";
import { call, isPhone } from "./api.js";
import { plural } from "./format.js";
import { set, state } from "./store.js";
import { Dialog, icon, into, withCode } from "./ui.js";

/** The names of the tools that are on. */
export function toolsOn() {
  const { tools } = /** @type {Options} */ (madeWith().options);
  const chosen = typeof tools === "string" ? tools.split(",") : null;
  return state.tools.filter(({ name, is_on }) => (chosen ? chosen.includes(name) : is_on)).map(({ name }) => name);
}

/** Says in the composer which tools are on. */
export function ToolButton() {
  const names = toolsOn().join(", ") || "no tools";
  return html`<button type="button" class="tools-on" aria-label=${`Tools: ${names}`} title=${`Tools: ${names}`}
    onClick=${() => set({ dialog: { kind: "tools" } })}>
    ${icon("tool")}<span class="name">${names}</span></button>`;
}

/** Switches the tools of the chat. */
export function Tools() {
  const [isAsking, setAsking] = useState(true);
  const read = () => readTools().then(() => setAsking(false));
  useEffect(() => void read(), []);
  const names = toolsOn();
  const change = async (/** @type {string} */ name) => {
    const on = toolsOn();
    await setTools(on.includes(name) ? on.filter((other) => other !== name) : [...on, name]);
    await read();
  };
  return html`<${Dialog} title="Tools" size="wide" isKept>
    <fieldset class="tools" aria-busy=${isAsking}><legend>The model may call these in this chat, and asks before each call that is not allowed</legend>
      ${state.tools.map(
        ({ name, about, description, problem, tools, is_mcp }, k) => html`<div class="tool-row"><label class="switch">
          <input type="checkbox" checked=${names.includes(name)} aria-describedby=${`tool-${k}`} onChange=${() => change(name)} />
          <span>${name}<small id=${`tool-${k}`}>${description || `It ${about}.`}${name === "browser" && " Its searches, and the addresses it opens, leave this machine."}
            ${tools.length > 1 && ` ${tools.map((tool) => tool.name).join(", ")}.`}
            ${tools.some((tool) => tool.trust) && ` Allowed: ${tools.filter((tool) => tool.trust).map((tool) => tool.name).join(", ")}.`}
            ${problem && html` <b>${withCode(problem)}</b>`}</small></span></label>
          ${is_mcp && !isPhone() && html`<${Remove} name=${name} onRemoved=${read} />`}</div>`,
      )}
    </fieldset>
    ${!isPhone() && html`<${NewServer} onAdded=${read} />`}
  <//>`;
}

/** @param {{name: string, onRemoved: () => void}} props */
function Remove({ name, onRemoved }) {
  const [isSure, setSure] = useState(false);
  const remove = async () => (isSure ? (await removeServer(name)) && onRemoved() : setSure(true));
  return html`<button type="button" class=${isSure ? "danger" : ""} aria-label=${`Remove ${name}`}
    onBlur=${() => setSure(false)} onClick=${remove}>${isSure ? "Really remove" : "Remove"}</button>`;
}

/** Adds an MCP server, and tests it before. @param {{onAdded: () => void}} props */
function NewServer({ onAdded }) {
  const [name, setName] = useState("");
  const [reached, setReached] = useState("");
  const [values, setValues] = useState("");
  const [said, setSaid] = useState({ text: "", hint: "", isError: false });
  const [isBusy, setBusy] = useState(false);
  const isUrl = /^https?:/.test(reached.trim());
  const server = { name: name.trim(), reached, values: values.split("\n") };
  const attempt = async (/** @type {() => Promise<void>} */ act) => {
    setBusy(true);
    try {
      await act();
    } catch (/** @type {any} */ error) {
      setSaid({ text: error.message, hint: error.hint, isError: true });
    }
    setBusy(false);
  };
  const test = () =>
    attempt(async () => {
      setSaid({ text: isUrl ? "Asking it…" : "Starting it…", hint: "", isError: false });
      const { about, seconds, tools } = await call("POST", "/api/gptoss/mcp/test", server);
      const text = `${about || "It"} answered after ${seconds.toFixed(1)} s, and has ${plural(tools.length, "tool")}: ${tools.join(", ")}`;
      setSaid({ text, hint: "", isError: false });
    });
  const add = (/** @type {Event} */ event) => {
    event.preventDefault();
    return attempt(async () => {
      await addServer(server, toolsOn());
      [setName(""), setReached(""), setValues(""), setSaid({ text: `Added ${server.name}.`, hint: "", isError: false })];
      onAdded();
    });
  };
  return html`<details class="new-server"><summary>Add an MCP server</summary><form onSubmit=${add}>
    <p class="hint">It runs on the server's machine, with all that your account may do. Add only servers that you trust.</p>
    <label>Name<input type="text" required maxlength="64" autocomplete="off" value=${name} onInput=${into(setName)} /></label>
    <label>Command or address<input type="text" required autocomplete="off" spellcheck=${false} value=${reached}
      placeholder="uvx mcp-server-fetch, or https://…" onInput=${into(setReached)} /></label>
    <label>${isUrl ? "Headers (NAME: VALUE), one a line" : "Variables (NAME=VALUE), one a line"}
      <textarea rows="2" autocomplete="off" spellcheck=${false} value=${values} onInput=${into(setValues)}></textarea></label>
    ${said.text && html`<p class=${said.isError ? "wrong" : "hint"} role=${said.isError ? "alert" : "status"}>${withCode(said.text)}${said.hint && html`<small class="hint"> ${withCode(said.hint)}</small>`}</p>`}
    <footer><button type="button" disabled=${isBusy || !server.name || !reached.trim()} onClick=${test}>Test</button>
      <button type="submit" class="primary" disabled=${isBusy}>Add</button></footer>
  </form></details>`;
}
