/** What the model is asked with: the system prompt, presets, the options of sampling. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { madeWith, readPresets, removePreset, savePreset, setInstructions, setModel, shown } from "./actions.js";
import { isPhone } from "./api.js";
import { state } from "./store.js";
import { closeDialog, Dialog, into, isComposing } from "./ui.js";

/** @type {[name: string, words: string, least: number, most: number, isWhole?: boolean][]} */
const OPTIONS = [
  ["temperature", "how random words are; 1 by default", 0, 2],
  ["top_p", "words of this total probability; 1 by default", 0, 1],
  ["top_k", "so many of the likeliest words; 0 for all", 0, 1000, true],
  ["min_p", "words at least this likely, relative to the first", 0, 1],
  ["seed", "the same seed gives the same answer", 0, 2147483647, true],
  ["num_predict", "the most tokens of an answer", 1, 2147483647, true],
  ["think_budget", "the most tokens of thinking, then it answers", 0, 2147483647, true],
  ["num_ctx", "tokens of context", 1, 131072, true],
];
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

/** Read numbers that were typed, or say which is wrong. @param {Options} options @returns {{read: Options, wrong?: string, problem?: string}} */
function numbersOf(options) {
  const read = { ...options };
  for (const [name, , least, most, isWhole] of OPTIONS) {
    const text = String(options[name] ?? "").trim();
    const value = NUMBER.test(text) ? Number(text) : NaN;
    if (!text) delete read[name];
    else if (value >= least && value <= most && (!isWhole || Number.isInteger(value))) read[name] = value;
    else {
      const problem = `${name} takes a ${isWhole ? "whole number" : "number"} from ${least} to ${most}, not “${text}”.`;
      return { read, wrong: name, problem: problem + (/^\d*,\d+$/.test(text) ? ` Write ${text.replace(",", ".")}.` : "") };
    }
  }
  return { read };
}

export function Settings() {
  const first = shown()[0];
  const now = madeWith();
  const [system, setSystem] = useState(state.chat ? (first?.role === "system" ? first.content : "") : state.draft.system);
  const [options, setOptions] = useState(/** @type {Options} */ (now.options));
  const [preset, setPreset] = useState(now.preset);
  const [name, setName] = useState("");
  const [{ wrong, problem }, setProblem] = useState(/** @type {{wrong?: string, problem?: string}} */ ({}));
  useEffect(() => void readPresets(), []);
  const known = state.presets.find((each) => each.name === preset);
  const begin = async (/** @type {string} */ wanted) => {
    const found = state.presets.find((each) => each.name === wanted);
    setPreset(wanted);
    if (!found) return;
    setSystem(found.system);
    setOptions({ ...found.options, ...(options.tools !== undefined && { tools: options.tools }) }); // a preset has none
    if (found.effort) await setModel(now.model, found.effort);
  };
  const put = (/** @type {string} */ option, /** @type {any} */ value) => setOptions({ ...options, [option]: value || undefined });
  const attempt = async (/** @type {(read: Options) => Promise<any>} */ act) => {
    const { read, ...found } = numbersOf(options);
    setProblem(found);
    if (!found.wrong) return act(read);
    /** @type {HTMLElement | null} */ (document.querySelector(`.settings [name="${found.wrong}"]`))?.focus();
  };
  const apply = (/** @type {Event} */ event) => {
    event.preventDefault();
    return attempt(async (read) => (await setInstructions(system, read, preset)) && closeDialog());
  };
  const onNameKey = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && !isComposing(event) && [event.preventDefault(), save()]; // not Apply
  const save = () =>
    attempt(async ({ tools: _, ...read }) => {
      const saved = name.trim() || preset;
      if (saved && (await savePreset({ name: saved, system, effort: now.effort, options: read }))) [setPreset(saved), setName("")];
    });
  return html`<${Dialog} title="This chat" size="wide" isKept>
    <form class="settings" onSubmit=${apply}>
      <label>Preset
        <select value=${preset} onChange=${into(begin)}>
          <option value="">none</option>
          ${state.presets.map((each) => html`<option value=${each.name} selected=${each.name === preset}>${each.name}</option>`)}
        </select></label>
      <label>System prompt
        <textarea rows="5" placeholder="Instructions for the model" value=${system} onInput=${into(setSystem)}></textarea></label>
      <fieldset><legend>Sampling</legend>
        ${OPTIONS.map(
          ([option, words]) => html`<label><span>${option}</span>
            <input type="text" inputmode="decimal" autocomplete="off" name=${option} placeholder="default"
              aria-describedby=${`about-${option}`} aria-invalid=${wrong === option} value=${options[option] ?? ""}
              onInput=${into((text) => put(option, text))} />
            <small id=${`about-${option}`}>${words}</small></label>`,
        )}
        <label class="switch"><input type="checkbox" name="truncate" checked=${!!options.truncate}
          onChange=${(/** @type {any} */ event) => put("truncate", event.target.checked)} />
          <span>Leave out the oldest turns of a prompt that does not fit</span></label>
      </fieldset>
      ${!isPhone() && html`<div class="save-preset">
        <input type="text" maxlength="40" aria-label="Name of the preset" placeholder=${preset || "Name of a preset"}
          value=${name} onInput=${into(setName)} onKeyDown=${onNameKey} />
        <button type="button" disabled=${!name.trim() && !preset} onClick=${save}>Save as a preset</button>
        ${known && html`<button type="button" onClick=${() => removePreset(known.name).then(() => setPreset(""))}>Delete ${known.name}</button>`}
      </div>`}
      <footer>${problem && html`<p class="wrong" role="alert">${problem}</p>`}
        <button type="button" onClick=${closeDialog}>Cancel</button>
        <button type="submit" class="primary">Apply</button></footer>
    </form>
  <//>`;
}
