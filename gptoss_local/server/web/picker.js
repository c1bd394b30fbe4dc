/** The model of the next answer in the composer: its place in memory, and the short list of others. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { madeWith, readFits, readModels, setModel } from "./actions.js";
import { count, gib } from "./format.js";
import { set, state } from "./store.js";
import { toolsOn } from "./toolbox.js";
import { usePopover } from "./ui.js";

const isLoopback = (/** @type {string} */ host) => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(host);

/** The machine that computes a model; empty if it is the server's. @param {string} name */
export function hostOf(name) {
  const address = state.models.find((model) => model.name === name)?.remote_host;
  const host = address && URL.canParse(address) ? new URL(address).hostname : (address ?? "");
  return isLoopback(host) ? "" : host;
}

/** The server's machine, in words. */
export const here = () => (isLoopback(location.hostname) ? "this machine" : location.hostname);

/** Whether the model of a chat was removed. @param {string} name */
export const isGone = (name) => state.models.length > 0 && !!name && !state.models.some((model) => model.name === name);

/** Say where what is typed goes; nothing before it is known. */
export function goesWhere() {
  if (!state.models.length || !state.tools.length) return "";
  const host = hostOf(madeWith().model);
  const sending = toolsOn().filter((name) => name !== "python");
  const others = sending.filter((name) => name !== "browser");
  if (!host && !sending.length) return `Everything stays on ${here()}.`;
  return [
    host ? `Computed at ${host}: your messages and files go there.` : `Computed on ${here()}.`,
    sending.length > others.length && "The tool browser sends its searches to the web.",
    others.length > 0 && `What ${others.join(", ")} ${others.length > 1 ? "do" : "does"} with a call may leave it, too.`,
  ].filter(Boolean).join(" ");
}

/** What a model takes of VRAM or RAM. @param {{fit: Fit | undefined}} props */
export const Memory = ({ fit }) => html`${fit?.memory.map(({ name, total, model, context, free }) => {
  const parts = /** @type {[string, number][]} */ ([["model", model], ["context", context], ["others", total - model - context - free], ["free", free]]);
  return html`<div class="memory">
    <div class="bar" aria-hidden="true">${parts.map(([what, bytes]) => html`<span class=${`of-${what}`} style=${{ flexGrow: bytes / total }}></span>`)}</div>
    <p class="facts">${name}, ${gib(total)}${parts.map(([what, bytes]) => bytes > 0 && html` <span class=${`of-${what}`}>${what} ${gib(bytes)}</span>`)}</p>
  </div>`;
})}`;

/** @param {string} name */
const fitOf = (name) => state.fits.models.find((fit) => fit.name === name);

/** Say in a few words how a model is. @param {string} name */
function said(name) {
  const { tokens_s: rate = 0, fits = "" } = fitOf(name) ?? {};
  if (state.loaded.some((each) => each.name === name)) return "loaded";
  return hostOf(name) || (fits === "no" ? "does not fit" : rate ? `${rate >= 10 ? count(rate) : rate.toPrecision(2)} tokens/s` : "");
}

/** Place an element above another one. @param {HTMLElement} shown @param {DOMRect} below */
function putAbove(shown, { left, top }) {
  shown.style.left = `${Math.max(8, Math.min(left, innerWidth - shown.offsetWidth - 8))}px`;
  shown.style.bottom = `${innerHeight - top + 6}px`;
  shown.style.maxHeight = `${top - 14}px`;
  shown.querySelector(".active")?.scrollIntoView({ block: "nearest" });
}

/** The name of the model, which opens the list, and shows its memory while it is pointed at or has the focus. */
export function ModelPicker() {
  const { isOpen, list, button, onClick, onToggle } = usePopover(putAbove, "ul");
  const [pointed, setActive] = useState(""); // in the open list
  const [isPeeking, setPeeking] = useState(false);
  const peek = useRef(/** @type {HTMLElement | null} */ (null));
  const { model, effort } = madeWith();
  const names = state.models.map((each) => each.name);
  const active = [pointed, model].find((name) => names.includes(name)) ?? names[0] ?? "";
  const isLoaded = (/** @type {string} */ name) => state.loaded.some((each) => each.name === name);
  const [, prefix = "", rest = model] = /^(gpt-oss:)(.+)$/.exec(model) ?? [];
  useEffect(() => void (isOpen ? readModels().then(readFits) : setActive("")), [isOpen]);
  const isPeekShown = isPeeking && !isOpen;
  useEffect(() => {
    if (!isPeekShown || !peek.current) return;
    peek.current.showPopover();
    putAbove(peek.current, button.current.getBoundingClientRect());
    if (!state.fits.models.length) void readFits();
  }, [isPeekShown]);
  const fit = fitOf(active);
  const gone = isGone(model);
  useEffect(() => void (gone && readModels()), [gone]); // another program may have brought it
  const close = () => list.current?.hidePopover();
  const choose = (/** @type {string} */ name) => [close(), name !== model && void setModel(name, effort)];
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const at = names.indexOf(active);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: names.length - 1 }[event.key];
    const next = Math.max(0, Math.min(to ?? at, names.length - 1));
    if (to !== undefined) [setActive(names[next] ?? ""), document.getElementById(`model-${next}`)?.scrollIntoView({ block: "nearest" })];
    else if ((event.key === "Enter" || event.key === " ") && active) choose(active);
    else return;
    event.preventDefault();
  };
  const row = (/** @type {string} */ name, /** @type {number} */ k) => html`<li role="option" id=${`model-${k}`}
    aria-selected=${name === model} class=${name === active ? "active" : ""} onClick=${() => choose(name)}
    onPointerMove=${() => setActive(name)}><span class=${isLoaded(name) ? "dot on" : "dot"}></span>
    <span class="name">${name}</span><span class="facts">${said(name)}</span></li>`;
  return html`<button type="button" class=${gone ? "model wrong" : "model"} ref=${button}
      aria-label=${`Model: ${model || "none"}${gone ? ", removed" : isLoaded(model) ? ", loaded" : ""}`} aria-haspopup="listbox" aria-expanded=${isOpen}
      aria-describedby=${isPeekShown ? "model-peek" : undefined} onClick=${onClick}
      onMouseEnter=${() => setPeeking(true)} onMouseLeave=${() => setPeeking(false)} onBlur=${() => setPeeking(false)}
      onFocus=${(/** @type {any} */ event) => event.target.matches(":focus-visible") && setPeeking(true)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && isPeeking && [event.stopPropagation(), setPeeking(false)]}>
      <span class=${isLoaded(model) ? "dot on" : "dot"}></span>
      <span class="name">${prefix && html`<span class="prefix">${prefix}</span>`}${rest || "Choose a model"}</span></button>
    ${isPeekShown && html`<div class="menu peek" popover="manual" role="tooltip" id="model-peek" ref=${peek}>
      <p>${[model, said(model), gone && "removed"].filter(Boolean).join(" · ")}</p><${Memory} fit=${fitOf(model)} /></div>`}
    ${isOpen && html`<div class="menu picker" popover="auto" ref=${list} onToggle=${onToggle}>
      <ul role="listbox" tabindex="0" aria-label="Model" aria-activedescendant=${`model-${names.indexOf(active)}`}
        onKeyDown=${onKeyDown}>${names.map(row)}</ul>
      <div class="place">${fit ? html`<${Memory} fit=${{ ...fit, memory: fit.memory.slice(0, 1) }} />` : hostOf(active) && html`<p class="facts">Computed at ${hostOf(active)}</p>`}</div>
      <button type="button" class="link" onClick=${() => [close(), set({ dialog: { kind: "models" } })]}>All models</button></div>`}`;
}
