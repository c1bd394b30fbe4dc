/** The tools of the open chat: which are on, and the switches. The model asks before each call. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { madeWith, readTools, setTools } from "./actions.js";
import { set, state } from "./store.js";
import { Dialog, icon } from "./ui.js";

/** The names of the tools that are on. */
function toolsOn() {
  const { tools } = /** @type {import("./types").Options} */ (madeWith().options);
  const chosen = typeof tools === "string" ? tools.split(",") : null;
  return state.tools.filter(({ name, is_on }) => (chosen ? chosen.includes(name) : is_on)).map(({ name }) => name);
}

/** Says in the composer which tools are on. */
export function ToolButton() {
  const names = toolsOn().join(", ") || "none is on";
  return html`<button type="button" class="model tools-on" aria-label=${`Tools: ${names}`} title=${`Tools: ${names}`}
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
    await setTools(names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
    await read();
  };
  return html`<${Dialog} title="Tools" size="wide">
    <fieldset class="tools" aria-busy=${isAsking}><legend>The model may call these in this chat, and asks before each call</legend>
      ${state.tools.map(
        ({ name, about, description, problem, tools }, k) => html`<div class="tool-row"><label class="switch">
          <input type="checkbox" checked=${names.includes(name)} aria-describedby=${`tool-${k}`} onChange=${() => change(name)} />
          <span>${name}<small id=${`tool-${k}`}>${description || `It ${about}.`}
            ${tools.length > 1 && ` ${tools.map((tool) => tool.name).join(", ")}.`}
            ${tools.some((tool) => tool.trust) && ` Allowed: ${tools.filter((tool) => tool.trust).map((tool) => tool.name).join(", ")}.`}
            ${problem && html` <b>${problem}</b>`}</small></span></label></div>`,
      )}
    </fieldset>
  <//>`;
}
