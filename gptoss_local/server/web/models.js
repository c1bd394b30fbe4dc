/** The models on this machine and in the catalogue: use, load, unload, download. */

import { html, useEffect } from "./vendor/preact.js";
import { madeWith, readFits, readModels, run, setModel, unload } from "./actions.js";
import { place, size } from "./format.js";
import { state } from "./store.js";
import { closeDialog, Dialog } from "./ui.js";

export function Models() {
  useEffect(() => void readModels().then(readFits), []);
  const { models, fits } = state;
  const missing = fits.filter((fit) => !models.some((model) => model.name === fit.name));
  return html`<${Dialog} title="Models" size="wide">
    <ul class="models" aria-label="On this machine">
      ${models.map((model) => html`<${Here} key=${model.name} model=${model} />`)}</ul>
    ${missing.length > 0 &&
    html`<h3>To download</h3><ul class="models" aria-label="To download">
      ${missing.map((fit) => html`<${Missing} key=${fit.name} fit=${fit} />`)}</ul>`}
    <p class="hint">Loading a model makes room by unloading others if memory needs it.</p>
  <//>`;
}

/** @param {{model: import("./types").Model}} props */
function Here({ model }) {
  const { name } = model;
  const loaded = state.loaded.find((each) => each.name === name);
  const { model: current, effort } = madeWith();
  const use = () => setModel(name, effort).then(closeDialog);
  const share = loaded && loaded.size && loaded.size_vram ? loaded.size_vram / loaded.size : 0;
  const facts = [
    model.size ? size(model.size) : (model.remote_host ? `computed at ${model.remote_host}` : "built on first use"),
    model.details.parameter_size,
    loaded ? `loaded, ctx ${loaded.context_length.toLocaleString("en")}` : place(state.fits.find((fit) => fit.name === name)),
    share > 0 && share < 1 && `${Math.round(100 * share)} % on the GPU`,
  ];
  const job = state.jobs[name];
  return html`<li>
    <div class="what"><span class=${loaded ? "dot on" : "dot"}></span><strong>${name}</strong>
      <span class="facts">${facts.filter(Boolean).join(" · ")}</span></div>
    ${job && html`<${Progress} name=${name} />`}
    <div class="buttons">
      ${name === current ? html`<span class="in-use">In use</span>` : html`<button type="button" class="primary" aria-label=${`Use ${name}`} onClick=${use}>Use</button>`}
      ${!job &&
      (loaded
        ? html`<button type="button" aria-label=${`Unload ${name}`} onClick=${() => unload(name)}>Unload</button>`
        : html`<button type="button" aria-label=${`Load ${name}`} onClick=${() => run("load", name)}>Load</button>`)}
    </div>
  </li>`;
}

/** @param {{fit: import("./types").Fit}} props */
function Missing({ fit }) {
  return html`<li>
    <div class="what"><span class="dot"></span><strong>${fit.name}</strong>
      <span class="facts">not on this machine · ${place(fit)}</span></div>
    ${state.jobs[fit.name]
      ? html`<${Progress} name=${fit.name} />`
      : html`<div class="buttons"><button type="button" aria-label=${`Download ${fit.name}`}
        onClick=${() => run("pull", fit.name)}>Download</button></div>`}
  </li>`;
}

/** @param {{name: string}} props */
function Progress({ name }) {
  const job = state.jobs[name];
  if (!job) return null;
  return html`<div class="progress">
    <progress max="1" value=${job.share ?? undefined}
      aria-label=${`${job.what === "load" ? "Loading" : "Downloading"} ${name}`}></progress>
    <span>${job.text}</span>
    ${job.what === "pull" && html`<button type="button" aria-label=${`Stop downloading ${name}`} onClick=${job.stop}>Stop</button>`}
  </div>`;
}
