/** The models on this machine and in the catalogue: use, load, unload, download. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { madeWith, readFits, readModels, run, setModel, shown, unload } from "./actions.js";
import { isPhone } from "./api.js";
import { place, size } from "./format.js";
import { hostOf, Memory } from "./picker.js";
import { set, state } from "./store.js";
import { closeDialog, Dialog } from "./ui.js";

export function Models() {
  useEffect(() => void readModels().then(readFits), []);
  const { models, fits } = state;
  const missing = isPhone() ? [] : fits.models.filter((fit) => !models.some((model) => model.name === fit.name));
  return html`<${Dialog} title="Models" size="wide">
    <ul class="models" aria-label="On this machine">
      ${models.map((model) => html`<${Here} key=${model.name} model=${model} />`)}</ul>
    ${missing.length > 0 &&
    html`<h3>To download</h3><ul class="models" aria-label="To download">
      ${missing.map((fit) => html`<${Missing} key=${fit.name} fit=${fit} />`)}</ul>`}
    <p class="hint">${isPhone() ? "Models are loaded and downloaded on the server's machine." : "Loading a model makes room by unloading others if memory needs it."}</p>
  <//>`;
}

/** @param {{model: Model}} props */
function Here({ model }) {
  const { name } = model;
  const loaded = state.loaded.find((each) => each.name === name);
  const { model: current, effort } = madeWith();
  const use = () => setModel(name, effort).then((isDone) => isDone && closeDialog());
  const share = loaded && loaded.size && loaded.size_vram ? loaded.size_vram / loaded.size : 0;
  const facts = [
    model.remote_host ? `computed at ${hostOf(name) || model.remote_host}` : model.size ? size(model.size) : "built on first use",
    name !== "nano" && model.details.parameter_size, // nearly all of nano's are the vocabulary
    name === "nano" && "a toy, to show that the program works",
    loaded ? `loaded, ctx ${loaded.context_length.toLocaleString("en")}` : place(state.fits.models.find((fit) => fit.name === name)),
    share > 0 && share < 1 && `${Math.round(100 * share)} % on the GPU`,
  ];
  const job = state.jobs[name];
  return html`<li>
    <div class="what"><span class=${loaded ? "dot on" : "dot"}></span><strong>${name}</strong>
      <span class="facts">${facts.filter(Boolean).join(" · ")}</span></div>
    <${Progress} name=${name} />
    <div class="buttons">
      ${name === current ? html`<span class="in-use">In use</span>` : html`<button type="button" class="primary" aria-label=${`Use ${name}`} onClick=${use}>Use</button>`}
      ${!job?.stop && !isPhone() &&
      (loaded
        ? html`<button type="button" aria-label=${`Unload ${name}`} onClick=${() => unload(name)}>Unload</button>`
        : html`<button type="button" aria-label=${`Load ${name}`} onClick=${() => run("load", name)}>Load</button>`)}
    </div>
  </li>`;
}

/** A model to download. @param {{fit: Fit}} props */
const Missing = ({ fit }) => html`<li>
  <div class="what"><span class="dot"></span><strong>${fit.name}</strong>
    <span class="facts">${[fit.headline.replace(/^.*?: /, ""), size(fit.file_bytes) + " on disk", !fit.problem && place(fit)].filter(Boolean).join(" · ")}</span></div>
  <${Download} fit=${fit} />
</li>`;

/** The button that downloads a model, which asks first where it cannot be used. @param {{fit: Fit}} props */
function Download({ fit }) {
  const [isAsking, setAsking] = useState(false);
  const { name, problem, download_bytes: bytes } = fit;
  const job = state.jobs[name];
  const start = () => [setAsking(false), void run("pull", name)];
  const words = problem ? "Download anyway" : job ? (job.isError ? "Try again" : "Continue") : `Download ${size(bytes)}`;
  return html`${!job?.stop && !isAsking && html`<div class="buttons"><button type="button" class=${name === state.fits.suggested ? "primary" : ""}
      aria-label=${`${words}: ${name}`} onClick=${problem ? () => setAsking(true) : start}>${words}</button></div>`}
    ${isAsking && html`<div class="progress" role="alert"><span>${name}: ${problem}. Download ${size(bytes)} all the same?</span>
      <button type="button" onClick=${start}>Download</button>
      <button type="button" onClick=${() => setAsking(false)}>Cancel</button></div>`}
    <${Progress} name=${name} />`;
}

/** How far a job is, or why it ended. @param {{name: string}} props */
function Progress({ name }) {
  const job = state.jobs[name];
  if (!job) return null;
  const { what, text, hint, isError, share, stop } = job;
  if (!stop) return html`<p class=${isError ? "progress wrong" : "progress"} role=${isError ? "alert" : "status"}>${text} ${hint}</p>`;
  return html`<div class="progress">
    <progress max="1" value=${share ?? undefined}
      aria-label=${`${what === "load" ? "Loading" : "Downloading"} ${name}`}></progress>
    <span>${text}</span>
    ${what === "pull" && html`<button type="button" aria-label=${`Stop downloading ${name}`} onClick=${stop}>Stop</button>`}
  </div>`;
}

/** The real model to offer while only nano is here. */
function offered() {
  const { models, is_new: isNew, suggested } = state.fits;
  if (!isNew || isPhone()) return undefined;
  return models.find((each) => each.name === suggested) ?? models.find((each) => each.download_bytes > 0);
}

/** In a new home, offer the model that suits this machine. */
export function First() {
  const fit = offered();
  return fit && html`<section class="first" aria-label="Get a real model">
    <h3>${fit.headline}</h3>
    <${Memory} fit=${fit} />
    <${Download} fit=${fit} />
    <p class="hint">${state.fits.advice}</p>
    <p class="hint">Only <b>nano</b> is here: a toy to try the program with. <button type="button" class="link"
      onClick=${() => set({ dialog: { kind: "models" } })}>All models</button></p>
  </section>`;
}

/** After an answer of nano's, offer the same. */
export function Offer() {
  const fit = offered();
  const last = shown().at(-1);
  if (!fit || last?.role !== "assistant" || last.model !== "nano" || last.state === "streaming") return null;
  return html`<section class="offer" aria-label="Get a real model"><p>nano is a toy. ${fit.headline}.</p><${Download} fit=${fit} /></section>`;
}
