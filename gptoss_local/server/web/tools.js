/** Calls of tools: what would run and whether it may, what ran, what came of it. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { decide, retry, undo } from "./actions.js";
import { isPhone } from "./api.js";
import { editOf, useUnsent } from "./composer.js";
import { elapsed, nLines, plain, plural } from "./format.js";
import { HASTE_MS, into } from "./ui.js";

const PATCH = "apply_patch";
const COLOURS = /** @type {Record<string, string>} */ ({ "+": "hljs-addition", "-": "hljs-deletion", "@": "hljs-meta" });

/** A part that is shown as one line until it is opened. @param {{label: string, text: string}} props */
export const Fold = ({ label, text }) =>
  html`<details class="fold"><summary>${plain(label)}</summary><pre tabindex="0">${plain(text)}</pre></details>`;

/** What a call would run: its only text, such as code or a patch, or its arguments. @param {any} call */
function given(call) {
  const { name = "", arguments: given = {} } = call?.function ?? {};
  const [[key, text] = [], ...others] = Object.entries(given ?? {});
  const isText = typeof text === "string" && !others.length && (key === "code" || name === PATCH || name === "run_command");
  return typeof given === "string" ? given : isText ? text : JSON.stringify(given, null, 2);
}

/** A part of a call; what a diff or a patch adds is green, what it takes away is red. @param {{kind: string, text: string, look?: string}} props */
const Part = ({ kind, text, look = kind }) =>
  html`<pre class=${look} tabindex=${look === "call" ? 0 : undefined}>${kind !== "diff" ? plain(text) : plain(text).split("\n").map((line) => html`<span class=${COLOURS[line[0] ?? ""]}>${line}${"\n"}</span>`)}</pre>`;

/** @param {{call: any}} props */
export const Call = ({ call }) => html`<${Fold} label=${`calls ${call?.function?.name ?? ""}`} text=${given(call)} />`;

/** A call that waits, runs or is over. @param {{turn: Turn, call?: any, isLast: boolean, isBusy: boolean, canUndo: boolean}} props */
export function Tool({ turn, call, isLast, isBusy, canUndo }) {
  const isLive = turn.state === "streaming";
  const { question } = turn.stats;
  return html`<article class="turn tool" id=${`turn-${turn.id}`} tabindex="-1" aria-busy=${isLive}
    aria-label=${isLive ? "Call of a tool" : "Result of a tool"}>
    ${isLive && question && html`<${Asked} turn=${turn} question=${question} />`}
    ${isLive && !question && html`<p class="live"><span class="pulse"></span>running ${plain(turn.tool_name)}</p>`}
    ${!isLive && html`<${Ran} turn=${turn} call=${call} />`}
    ${canUndo && html`<p class="state"><button type="button" disabled=${isBusy} onClick=${undo}>Undo this patch</button></p>`}
    ${!isLive && isLast && html`<p class="state"><button type="button" disabled=${isBusy}
      onClick=${() => retry(turn, turn.id)}>Let the model answer</button></p>`}
  </article>`;
}

/** A call that is over: one line, and what ran and what came of it. @param {{turn: Turn, call?: any}} props */
function Ran({ turn: { tool_name, content, state, stats }, call }) {
  const { seconds, is_error } = stats;
  const words = tool_name === PATCH && !call ? "Took back a patch" : state !== "done" && !content ? `${tool_name} was interrupted` : is_error ? `${tool_name} failed` : `Ran ${tool_name}`;
  return html`<details class="fold ran"><summary>${plain(words)}${seconds !== undefined && ` · ${elapsed(seconds)}`}</summary>
    ${call && html`<${Part} kind=${tool_name === PATCH ? "diff" : ""} look="call" text=${given(call)} />`}
    ${content && html`<p class="hint">${plural(nLines(content), "line")}</p><pre class="result" tabindex="0">${plain(content)}</pre>`}
  </details>`;
}

/**
 * Whether a call may run. It can be allowed once the end of what would run has been in view.
 * @param {{turn: Turn, question: Question}} props
 */
function Asked({ turn, question }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [isSeen, setSeen] = useState(false);
  const [isReady, setReady] = useState(false);
  const { typed: reason, setTyped: setReason } = useUnsent(`${editOf(turn)}-why`);
  const look = () => {
    const { scrollTop = 0, clientHeight = 0, scrollHeight = 0 } = box.current ?? {};
    if (clientHeight && scrollTop + clientHeight >= scrollHeight - 1) setSeen(true);
  };
  useEffect(() => {
    const timer = setTimeout(() => setReady(true), HASTE_MS);
    const observer = new ResizeObserver(look);
    observer.observe(/** @type {HTMLElement} */ (box.current));
    return () => [clearTimeout(timer), observer.disconnect()];
  }, []);
  const allow = (/** @type {string} */ words, /** @type {string} */ scope) =>
    html`<button type="button" class=${scope === "once" ? "primary" : ""} disabled=${!isSeen || !isReady}
      onClick=${() => decide(turn, scope)}>${words}</button>`;
  const deny = (/** @type {Event} */ event) => [event.preventDefault(), decide(turn, "no", reason)];
  const id = `asked-${turn.id}`;
  return html`<form class="asked" role="group" aria-labelledby=${id} onSubmit=${deny}>
    <h2 id=${id}>The model asks to run ${plain(turn.tool_name)}</h2>
    <p class="hint">It ${plain(question.about)}.</p>
    <div class="what" ref=${box} tabindex="0" role="region" aria-label="What would run" onScroll=${look}>
      ${question.parts.map((part) => html`<${Part} ...${part} />`)}
    </div>
    ${!isSeen && !isPhone() && html`<p class="hint">Scroll to its end before you allow it.</p>`}
    ${isPhone() ? html`<p class="hint">It can be allowed on the server's machine alone.</p>` : html`<p class="buttons">${allow("Allow once", "once")}${question.lasting.includes("chat") && allow("Allow in this chat", "chat")}
      ${question.lasting.includes("always") && allow(`Always allow ${plain(question.always)}`, "always")}</p>`}
    <p class="buttons"><button type="submit" disabled=${!isReady}>No</button>
      <input type="text" aria-label="Why not" placeholder="Why not? The model is told." value=${reason} onInput=${into(setReason)} /></p>
  </form>`;
}
