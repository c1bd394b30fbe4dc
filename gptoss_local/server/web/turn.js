/** One turn of a chat: what the user said, what the model answered, the call of a tool. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { answerNow, choose, fork, resume, retry, retryWith } from "./actions.js";
import { richOf } from "./copying.js";
import { elapsed, energy, plain, plural, speed, waiting } from "./format.js";
import { here, hostOf } from "./picker.js";
import { drawnAs } from "./preview.js";
import { notLoaded, set, state } from "./store.js";
import { steady } from "./table.js";
import { parts, wasCut } from "./tree.js";
import { isPrinted } from "./transcript.js";
import { afterPaint, CopyButton, copyText, IconButton, memo, Menu, withCode } from "./ui.js";
import { edit, Editor } from "./composer.js";
import { Call, Fold, Tool } from "./tools.js";

const LINES_A_PIECE = 40;
const NO_PAGES = /** @type {Page[]} */ ([]);
const COST = 4; // an open block is made again after this many times what it took

/** @typedef {import("./markdown.js").Block} Block */

/**
 * What renders Markdown. It is large, and loaded after the first paint.
 * @type {typeof import("./markdown.js").Growing | undefined}
 */
let Growing;
export const drawing = afterPaint.then(() => import("./markdown.js")).then((markdown) => (Growing = markdown.Growing)).catch(notLoaded);

/** Whether Markdown can be drawn, which a page that is printed needs. */
export const canDraw = () => Growing !== undefined;

export const TurnView = memo(
  /**
   * @param {{turn: Turn, ids: number[], pages: Page[], models: string[], call?: any, isStep: boolean, isLast: boolean, isEdited: boolean, isBusy: boolean, canUndo: boolean, isLost: boolean, progress?: Progress}} props
   */
  (props) => {
    const { turn, isEdited } = props;
    if (isEdited) return html`<article class="turn user" id=${`turn-${turn.id}`}
      aria-label="Edit your message"><${Editor} turn=${turn} /></article>`;
    if (turn.role === "assistant") return html`<${Assistant} ...${props} />`;
    return turn.role === "tool" ? html`<${Tool} ...${props} />` : html`<${User} ...${props} />`;
  },
);

/** @param {{turn: Turn, ids: number[], isBusy: boolean}} props */
function User({ turn, ids, isBusy }) {
  const isSystem = turn.role === "system";
  const text = html`${parts(turn).map(({ label, text }) =>
    label ? html`<${Fold} label=${label} text=${text} />` : text.trim() && html`<p>${plain(text.trim())}</p>`,
  )}`;
  return html`<article class=${`turn ${turn.role}`} id=${`turn-${turn.id}`} tabindex="-1"
    aria-label=${isSystem ? "System prompt" : "You"}>
    <div class="bubble">${isSystem ? html`<${Fold} label="System prompt" text=${turn.content} />` : text}</div>
    <div class="turn-foot">
      <${Versions} turn=${turn} ids=${ids} />
      <span class="actions">
        <${CopyButton} label="Copy the message" copy=${() => copyText(turn.content)} />
        <${IconButton} name="edit" label=${isSystem ? "Edit the system prompt" : "Edit the message"}
          disabled=${isBusy} onClick=${() => (isSystem ? set({ dialog: { kind: "settings" } }) : edit(turn))} />
      </span>
    </div>
  </article>`;
}

/**
 * @param {{turn: Turn, ids: number[], pages: Page[], models: string[], isStep: boolean, isLast: boolean, isBusy: boolean, isLost: boolean, progress?: Progress}} props
 */
function Assistant({ turn, ids, pages, models, isStep, isLast, isBusy, isLost, progress }) {
  const isLive = turn.state === "streaming";
  const isBare = isStep && !turn.content; // a tool was called, and no more said
  const others = models
    .filter((name) => name !== turn.model)
    .map((name) => /** @type {[string, () => void]} */ ([name, () => void retryWith(turn, name)]));
  const copy = () => copyText(turn.content, Growing && richOf(new Growing(pages).update(turn.content, true)));
  return html`<article class="turn assistant" id=${`turn-${turn.id}`} tabindex="-1" aria-label="Answer"
    aria-busy=${isLive}>
    <${Answer} turn=${turn} pages=${pages} isStep=${isStep} isLost=${isLost} progress=${progress} />
    ${!isLive && html`<${State} turn=${turn} isLast=${isLast} isBusy=${isBusy} />`}
    ${(!isBare || ids.length > 1) && html`<div class="turn-foot">
      <${Versions} turn=${turn} ids=${ids} />
      ${!isLive && !isBare &&
      html`<span class="actions">
        <${CopyButton} label="Copy the answer" copy=${copy} />
        <${IconButton} name="retry" label="Answer again" disabled=${isBusy} onClick=${() => retry(turn)} />
        ${others.length > 0 && !isBusy && html`<${Menu} label="Answer again with another model" icon="chip" actions=${others} />`}
        <${IconButton} name="fork" label="Branch into a new chat" disabled=${isBusy} onClick=${() => fork(turn)} />
      </span>`}
      ${!isLive && !isBare && html`<${Facts} turn=${turn} />`}
    </div>`}
  </article>`;
}

/**
 * What an answer says; of a step that called tools, their results show the calls.
 * @param {{turn: Turn, pages: Page[], isStep?: boolean, isLost?: boolean, progress?: Progress}} props
 */
export function Answer({ turn, pages, isStep = false, isLost = false, progress }) {
  const isLive = turn.state === "streaming";
  return html`${turn.reasoning && html`<${Reasoning} turn=${turn} isLive=${isLive && !turn.content} />`}
    <${Prose} text=${turn.content} pages=${pages} isLive=${isLive} />
    ${!isStep && turn.tool_calls.map((call) => html`<${Call} call=${call} />`)}
    ${isLive && html`<${Live} turn=${turn} isLost=${isLost} progress=${progress} />`}`;
}

/** What the model thought: open while it thinks, unless the user chose. @param {{turn: Turn, isLive: boolean}} props */
function Reasoning({ turn, isLive }) {
  const [chosen, choose] = useState(/** @type {boolean | null} */ (null));
  const since = useRef(performance.now());
  const isOpen = chosen ?? isLive;
  const { reasoning_s, n_reasoning_frames } = turn.stats;
  const about = plural(Math.ceil(turn.reasoning.length / 4), "token");
  const counted = n_reasoning_frames === undefined ? `~${about}` : plural(n_reasoning_frames, "token");
  const seconds = reasoning_s ?? (isLive ? (performance.now() - since.current) / 1000 : undefined);
  const label = [`${isLive ? "Reasoning" : "Reasoned"} ${isLive ? `~${about}` : counted}`, seconds !== undefined && `${seconds.toFixed(1)} s`];
  const onClick = (/** @type {MouseEvent} */ event) => [event.preventDefault(), choose(!isOpen)];
  return html`<details class=${isLive ? "reasoning thinking" : "reasoning"} open=${isOpen}>
    <summary onClick=${onClick}>${label.filter(Boolean).join(" · ")}</summary>
    ${isOpen && html`<div class="reasoning-text" tabindex="0"><${Prose} text=${turn.reasoning} pages=${NO_PAGES} isLive=${isLive} /></div>`}
  </details>`;
}

/** When the answers that stream were first seen, in ms. @type {Map<number, number>} */
const begun = new Map();

/** What an answer does while it streams. @param {{turn: Turn, isLost: boolean, progress?: Progress}} props */
function Live({ turn, isLost, progress }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((/** @type {number} */ n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  if (isLost) return html`<p class="live">The server does not answer</p>`;
  if (!begun.has(turn.id)) begun.set(turn.id, performance.now());
  const seconds = (performance.now() - (begun.get(turn.id) ?? 0)) / 1000;
  const rate = progress?.tokens_per_s ? ` · ~${Math.round(progress.tokens_per_s)} tok/s` : "";
  const words = turn.content || turn.reasoning ? elapsed(seconds) + rate : waiting(progress);
  const isThinking = turn.reasoning && !turn.content;
  return html`<p class="live"><span class=${isThinking ? "meter" : "pulse"}></span>${words}
    ${isThinking && html`<button type="button" onClick=${() => answerNow(turn)}>Answer now</button>`}</p>`;
}

/**
 * Why an answer ended before its end, and the way to continue it.
 * @param {{turn: Turn, isLast: boolean, isBusy: boolean}} props
 */
function State({ turn, isLast, isBusy }) {
  const isCut = turn.state === "done" && turn.stats.done_reason === "length";
  const isCircling = turn.state === "done" && turn.stats.done_reason === "repetition";
  const words = isCircling ? "Stopped: it went in circles" : isCut ? "Reached its length limit" : { stopped: "Stopped", failed: "Failed", done: "", streaming: "" }[turn.state];
  if (!words) return null;
  const error = turn.stats.error ? `: ${turn.stats.error}` : "";
  return html`<p class=${turn.state === "failed" ? "state failed" : "state"}>
    <span>${words}${withCode(error)}</span>
    ${isLast && wasCut(turn) && html`<button type="button" disabled=${isBusy} onClick=${() => resume(turn)}>Continue</button>`}
    ${isLast && turn.state === "failed" && html`<button type="button" disabled=${isBusy} onClick=${() => retry(turn)}>Try again</button>`}
  </p>`;
}

/** What an answer took, and the rest on demand. @param {{turn: Turn}} props */
function Facts({ turn }) {
  const { eval_count, total_duration, ttft_s } = turn.stats;
  const rate = speed(turn.stats);
  const isKnown = state.models.some((model) => model.name === turn.model);
  const took = [total_duration && elapsed(total_duration / 1e9), rate && `${Math.round(rate)} tok/s`, energy(turn.stats), rate && isKnown && `on ${hostOf(turn.model) || here()}`];
  const first = typeof ttft_s === "number" && `first after ${ttft_s.toFixed(2)} s`;
  const words = (/** @type {any[]} */ facts) => facts.filter(Boolean).join(" · ");
  return html`<span class="took">${words(took)}</span>
    <span class="facts">${words([turn.model, turn.effort, eval_count && plural(eval_count, "token"), first])}</span>`;
}

let turned = 0; // from one version to the next: the button keeps the focus

/** @param {{turn: Turn, ids: number[]}} props */
function Versions({ turn, ids }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    if (!turned || state.sought !== turn.id || !place.current) return;
    const [before, after] = place.current.querySelectorAll("button");
    (turned > 0 && !after?.disabled ? after : before?.disabled ? after : before)?.focus();
    turned = 0;
  }, []);
  const now = ids.indexOf(turn.id);
  if (ids.length < 2 || now < 0) return null;
  const move = (/** @type {number} */ step) => [(turned = step), void choose(ids[now + step] ?? turn.id)];
  return html`<span class="versions" ref=${place} role="group" aria-label="Versions">
    <${IconButton} name="left" label="Version before" disabled=${now === 0} onClick=${() => move(-1)} />
    <span>${now + 1}/${ids.length}</span>
    <${IconButton} name="right" label="Next version" disabled=${now === ids.length - 1} onClick=${() => move(1)} />
    ${turn.role === "assistant" && html`<${IconButton} name="columns" label="Side by side"
      onClick=${() => set({ dialog: { kind: "compare", turn } })} />`}
  </span>`;
}

/**
 * Markdown that grows. Blocks that are finished are not touched again. Far from the screen, and until Markdown is
 * loaded, the text stands as it was written: cheap, and found by the browser's search.
 * @param {{text: string, pages: Page[], isLive: boolean}} props
 */
function Prose({ text, pages, isLive }) {
  const self = useRef(/** @type {any} */ ({ growing: null, blocks: [], costMs: 0, atMs: -1e9, timer: 0 }));
  const [, again] = useState(0);
  const [isNear, setNear] = useState(isLive || isPrinted());
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    if (isNear || !place.current) return;
    const far = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && setNear(true), {
      root: place.current.closest(".transcript"),
      rootMargin: "150% 0px",
    });
    far.observe(place.current);
    const onPrint = () => setNear(true);
    addEventListener("beforeprint", onPrint);
    return () => [far.disconnect(), removeEventListener("beforeprint", onPrint)];
  }, [isNear, !text]);
  const me = self.current;
  const repaint = () => [(me.timer = 0), again((/** @type {number} */ n) => n + 1)];
  const waitMs = isLive ? me.atMs + COST * me.costMs - performance.now() : 0;
  const isMade = isNear && Growing && waitMs <= 0;
  if (Growing && isMade) {
    me.atMs = performance.now();
    me.growing ??= new Growing(pages);
    me.blocks = me.growing.update(text, !isLive);
  } else if (isNear && Growing) me.timer ||= setTimeout(repaint, waitMs);
  useLayoutEffect(() => {
    if (isMade) me.costMs = performance.now() - me.atMs; // with the nodes that were made
  });
  const isEarly = !Growing;
  useEffect(() => {
    if (isEarly) void drawing.then(repaint);
    return () => clearTimeout(me.timer);
  }, []);
  if (!text) return null;
  if (!me.blocks.length) return html`<div class="prose raw" ref=${place}>${plain(text)}</div>`;
  return html`<div
    class="prose">${me.blocks.map((/** @type {Block} */ block) => html`<${BlockView} key=${block.key} block=${block} />`)}</div>`;
}

const BlockView = memo(
  /** @param {{block: Block}} props */
  ({ block }) => (block.code === null ? html`<${Made} block=${block} />` : html`<${OpenCode} code=${block.code}
    language=${block.language} />`),
);

/** A block, or a table of which only the rows that are new are made. @param {{block: Block}} props */
function Made({ block }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const made = useRef(/** @type {{part: Block, nodes: Element[]}[]} */ ([]));
  const columns = useRef(/** @type {string[]} */ ([]));
  useLayoutEffect(() => {
    const [{ rows = [block] }, box] = [block, /** @type {HTMLElement} */ (place.current)];
    const isFirst = !made.current.length;
    const nOther = rows.findIndex((part, k) => made.current[k]?.part !== part);
    for (const { nodes } of made.current.splice(nOther < 0 ? rows.length : nOther)) for (const each of nodes) each.remove();
    for (const [k, part] of [...rows.entries()].slice(made.current.length)) {
      const nodes = k ? [...part.make().querySelectorAll("tbody > tr")] : [];
      if (k) box.querySelector("tbody")?.append(...nodes);
      else box.replaceChildren(part.make());
      made.current.push({ part, nodes });
    }
    if (!isFirst || block.grows) columns.current = steady(box, columns.current);
  }, [block]);
  return html`<div class="block" ref=${place}></div>`;
}

/** @param {{code: string, language: string}} props */
const OpenCode = ({ code, language }) =>
  html`<div class="block"><div class="code"><div class="code-head"><span>${language}</span>
    ${drawnAs(language, code) && html`<button type="button" class="preview">Preview</button>`}</div>
    <pre tabindex="0"><code><${Pieces} text=${code} /></code></pre></div></div>`;

/** A long text that grows: only its last piece is painted again. @param {{text: string}} props */
function Pieces({ text }) {
  const lines = text.split("\n");
  const pieces = [];
  for (let i = 0; i < lines.length; i += LINES_A_PIECE) {
    const isLast = i + LINES_A_PIECE >= lines.length;
    pieces.push(lines.slice(i, i + LINES_A_PIECE).join("\n") + (isLast ? "" : "\n"));
  }
  return pieces.map((piece, k) => html`<span class="piece" key=${k}>${piece}</span>`);
}
