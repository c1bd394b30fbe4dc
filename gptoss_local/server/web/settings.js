/** What the model is asked with: the system prompt, presets, the options of sampling. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { madeWith, readPresets, removePreset, savePreset, setInstructions, setModel, shown } from "./actions.js";
import { isPhone } from "./api.js";
import { state } from "./store.js";
import { closeDialog, Dialog } from "./ui.js";

/** @type {[name: string, words: string, attributes: object][]} */
const OPTIONS = [
  ["temperature", "how random words are; 1 by default", { min: 0, max: 2, step: "any" }],
  ["top_p", "words of this total probability; 1 by default", { min: 0, max: 1, step: "any" }],
  ["top_k", "so many of the likeliest words; 0 for all", { min: 0, max: 1000, step: 1 }],
  ["min_p", "words at least this likely, relative to the first", { min: 0, max: 1, step: "any" }],
  ["seed", "the same seed gives the same answer", { min: 0, max: 2147483647, step: 1 }],
  ["num_predict", "the most tokens of an answer", { min: 1, max: 2147483647, step: 1 }],
  ["think_budget", "the most tokens of thinking, then it answers", { min: 0, max: 2147483647, step: 1 }],
  ["num_ctx", "tokens of context", { min: 1, max: 131072, step: 1 }],
];

/** @typedef {import("./types").Options} Options */

export function Settings() {
  const first = shown()[0];
  const now = madeWith();
  const [system, setSystem] = useState(state.chat ? (first?.role === "system" ? first.content : "") : state.draft.system);
  const [options, setOptions] = useState(/** @type {Options} */ (now.options));
  const [preset, setPreset] = useState(now.preset);
  const [name, setName] = useState("");
  const { tools, ...sampling } = options; // a preset has no tools
  const chosen = /** @type {Options} */ (tools === undefined ? {} : { tools });
  useEffect(() => void readPresets(), []);
  const known = state.presets.find((each) => each.name === preset);
  const begin = async (/** @type {string} */ wanted) => {
    const found = state.presets.find((each) => each.name === wanted);
    setPreset(wanted);
    if (!found) return;
    setSystem(found.system);
    setOptions({ ...found.options, ...chosen });
    if (found.effort) await setModel(now.model, found.effort);
  };
  const put = (/** @type {string} */ option, /** @type {number | boolean | string | null} */ value) => {
    const { [option]: _, ...others } = options;
    setOptions(value === null ? others : { ...others, [option]: value });
  };
  const apply = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (await setInstructions(system, options, preset)) closeDialog();
  };
  const save = async () => {
    const saved = name.trim() || preset;
    if (saved && (await savePreset({ name: saved, system, effort: now.effort, options: sampling }))) [setPreset(saved), setName("")];
  };
  return html`<${Dialog} title="This chat" size="wide">
    <form class="settings" onSubmit=${apply}>
      <label>Preset
        <select value=${preset} onChange=${(/** @type {any} */ event) => begin(event.target.value)}>
          <option value="">none</option>
          ${state.presets.map((each) => html`<option value=${each.name} selected=${each.name === preset}>${each.name}</option>`)}
        </select></label>
      <label>System prompt
        <textarea rows="5" placeholder="Instructions for the model" value=${system}
          onInput=${(/** @type {any} */ event) => setSystem(event.target.value)}></textarea></label>
      <fieldset><legend>Sampling</legend>
        ${OPTIONS.map(
          ([option, words, attributes]) => html`<label><span>${option}</span>
            <input type="number" ...${attributes} name=${option} placeholder="default"
              aria-describedby=${`about-${option}`} value=${options[option] ?? ""}
              onInput=${(/** @type {any} */ event) => put(option, event.target.value === "" ? null : Number(event.target.value))} />
            <small id=${`about-${option}`}>${words}</small></label>`,
        )}
        <label class="switch"><input type="checkbox" name="truncate" checked=${!!options.truncate}
          onChange=${(/** @type {any} */ event) => put("truncate", event.target.checked || null)} />
          <span>Leave out the oldest turns of a prompt that does not fit</span></label>
      </fieldset>
      ${!isPhone() && html`<div class="save-preset">
        <input type="text" maxlength="40" aria-label="Name of the preset" placeholder=${preset || "Name of a preset"}
          value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
        <button type="button" disabled=${!name.trim() && !preset} onClick=${save}>Save as a preset</button>
        ${known && html`<button type="button" onClick=${() => removePreset(known.name).then(() => setPreset(""))}>Delete ${known.name}</button>`}
      </div>`}
      <footer><button type="button" onClick=${closeDialog}>Cancel</button>
        <button type="submit" class="primary">Apply</button></footer>
    </form>
  <//>`;
}
