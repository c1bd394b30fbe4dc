/**
 * The preview of a block of HTML, SVG or mermaid, in a pane beside the chat. What runs there has an origin of its own,
 * and its document's policy lets nothing out: no request, no form, no window. The page's policy lets the frame go
 * nowhere else.
 */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { save } from "./actions.js";
import { set, state } from "./store.js";
import { IconButton } from "./ui.js";

const LONGEST = 500_000; // characters
const LOOK_MS = 700; // between looks at code that is still written
const STUCK_MS = 3000;
const DOCTYPE = "<!doctype html>\n"; // not in quirks mode
const ENDINGS = { html: "html", svg: "svg", mermaid: "mmd" };

/** Return what a block of code is drawn as. @param {string} language @param {string} text @returns {"" | Preview["kind"]} */
export function drawnAs(language, text) {
  if (text.length > LONGEST) return "";
  if (/^x?html$/i.test(language)) return "html";
  if (/^svg$/i.test(language) || (/^xml$/i.test(language) && /<svg[\s>]/i.test(text))) return "svg";
  return /^mermaid$/i.test(language) ? "mermaid" : "";
}

addEventListener("click", ({ target }) => {
  const button = target instanceof Element && target.closest("button.preview");
  const [code, turn] = [button && button.closest(".code"), button && button.closest(".turn")];
  if (!code || !turn) return;
  const place = { turn: turn.id, n: [...turn.querySelectorAll(".code")].indexOf(code) };
  const now = codeAt(place);
  const kind = now && drawnAs(now.language, now.text);
  if (kind) set({ preview: { ...place, ...now, kind } });
});

/** Return a block of code as it is now; null while it is not painted. @param {{turn: string, n: number}} place */
function codeAt({ turn, n }) {
  const code = document.getElementById(turn)?.querySelectorAll(".code")[n];
  const text = code?.querySelector("pre")?.textContent;
  if (!code || typeof text !== "string") return null;
  return { text, language: code.querySelector(".code-head span")?.textContent ?? "", isOpen: !code.querySelector("button.copy") };
}

/** Return a frame that draws what it is told once it is loaded. @param {object} message */
export function makeFrame(message) {
  const frame = Object.assign(document.createElement("iframe"), { title: "Preview", src: "/web/preview.html" });
  frame.setAttribute("sandbox", "allow-scripts");
  frame.addEventListener("load", () => frame.contentWindow?.postMessage(message, "*"), { once: true });
  return frame;
}

/** @type {Promise<string> | undefined} */
let mermaid; // its source: the frame itself can load nothing

/** Return what draws a block of code. @param {Preview} preview */
async function messageOf({ kind, text, isOpen }) {
  if (kind !== "mermaid") return { html: DOCTYPE + text };
  mermaid ??= fetch("/web/vendor/mermaid.js").then((response) => response.text());
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  return { script: await mermaid, text, isOpen, isDark: (document.documentElement.dataset.theme ?? system) === "dark" };
}

/** @param {{preview: Preview}} props */
export function PreviewPane({ preview }) {
  const { turn, n, kind, text, isOpen } = preview;
  const pane = useRef(/** @type {HTMLElement | null} */ (null));
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  const [nLoads, reload] = useState(0);
  const [width, setWidth] = useState(50);
  const close = () => {
    set({ preview: null });
    /** @type {HTMLElement | null} */ (document.getElementById(turn)?.querySelectorAll(".code")[n]?.querySelector("button.preview"))?.focus();
  };
  useEffect(() => {
    /** @type {HTMLElement | null | undefined} */ (pane.current?.querySelector(".preview-head button"))?.focus();
    const look = () => {
      const [now, was] = [codeAt({ turn, n }), state.preview];
      if (now && was && (now.text !== was.text || now.isOpen !== was.isOpen)) set({ preview: { ...was, ...now } });
    };
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, [turn, n]);
  useEffect(() => {
    let isOver = false;
    void messageOf(preview).then((message) => {
      const place = body.current;
      if (isOver || !place) return;
      const first = /** @type {HTMLIFrameElement | null} */ (place.firstElementChild);
      if (kind === "mermaid" && first?.dataset.kind === `mermaid ${nLoads}`) return first.contentWindow?.postMessage({ ...message, script: "" }, "*");
      while (place.children.length > 1) place.lastElementChild?.remove();
      const frame = makeFrame(message);
      frame.dataset.kind = `${kind} ${nLoads}`;
      place.append(frame); // hidden while there is an earlier one, until it is written
      const show = () => frame.isConnected && [...place.children].forEach((each) => each !== frame && each.remove());
      frame.addEventListener("load", () => frame.addEventListener("load", show, { once: true }), { once: true });
      if (first) setTimeout(show, kind === first.dataset.kind?.split(" ")[0] ? STUCK_MS : 0);
    });
    return () => void (isOver = true);
  }, [turn, n, kind, text, isOpen, nLoads]);
  const resize = (/** @type {number} */ to) => setWidth(Math.max(20, Math.min(75, to)));
  const onMove = (/** @type {PointerEvent} */ event) => event.buttons && resize(100 - (100 * event.clientX) / innerWidth);
  const onGripKey = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowLeft: 5, ArrowRight: -5 }[event.key];
    if (step) resize(width + step);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") [event.stopPropagation(), close()];
  };
  return html`<aside class="preview-pane" ref=${pane} style=${{ "--width": `${width}vw` }} aria-label="Preview" onKeyDown=${onKeyDown}>
    <div class="grip" role="separator" aria-orientation="vertical" aria-label="Width of the preview" tabindex="0"
      aria-valuenow=${Math.round(width)} onKeyDown=${onGripKey} onPointerMove=${onMove}
      onPointerDown=${(/** @type {any} */ event) => event.target.setPointerCapture(event.pointerId)}></div>
    <header class="preview-head">
      <${IconButton} name="close" label="Close the preview" onClick=${close} />
      <h2>${kind === "mermaid" ? "Diagram" : kind.toUpperCase()}</h2>
      <span class="hint" title="What runs here reaches no server, and keeps nothing.">No network, no storage</span>
      <span class="space"></span>
      <${IconButton} name="retry" label="Reload the preview" onClick=${() => reload(nLoads + 1)} />
      <${IconButton} name="download" label="Download the code" onClick=${() => save(new Blob([text]), `preview.${ENDINGS[kind]}`)} />
      ${document.fullscreenEnabled && html`<${IconButton} name="expand" label="Full screen" onClick=${() => pane.current?.requestFullscreen()} />`}
    </header>
    <div class="preview-body" ref=${body}></div>
  </aside>`;
}
