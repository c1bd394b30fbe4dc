/** Calls of tools: what would run and whether it may, what ran, what came of it. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { answerTo, decide } from "./actions.js";
import { isPhone } from "./api.js";
import { plain, plural } from "./format.js";

const HASTE_MS = 500; // a click that was meant for what was there before decides nothing

/** @typedef {import("./types").Turn} Turn */

/** A part that is shown as one line until it is opened. @param {{label: string, text: string}} props */
export const Fold = ({ label, text }) =>
  html`<details class="fold"><summary>${plain(label)}</summary><pre tabindex="0">${plain(text)}</pre></details>`;

/** @param {{call: any}} props */
export function Call({ call }) {
  const { name = "", arguments: given = {} } = call?.function ?? {};
  if (name === "python" && typeof given?.code === "string" && Object.keys(given).length === 1) {
    return html`<${Fold} label=${`calls python: ${given.code.trim().split("\n")[0]}`} text=${given.code} />`;
  }
  const inline = typeof given === "string" ? given : Object.entries(given).map(([key, value]) => `${key}: ${JSON.stringify(value)}`).join(", ");
  const text = typeof given === "string" ? given : JSON.stringify(given, null, 2);
  return html`<${Fold} label=${`calls ${name}(${inline})`} text=${text} />`;
}

/** A call that waits, runs or is over. @param {{turn: Turn, isLast: boolean, isBusy: boolean}} props */
export function Tool({ turn, isLast, isBusy }) {
  const isLive = turn.state === "streaming";
  const { question } = turn.stats;
  return html`<article class="turn tool" id=${`turn-${turn.id}`} tabindex="-1" aria-busy=${isLive}
    aria-label=${isLive ? "Call of a tool" : "Result of a tool"}>
    ${isLive && question && html`<${Asked} turn=${turn} question=${question} />`}
    ${isLive && !question && html`<p class="live"><span class="pulse"></span>running ${plain(turn.tool_name)}</p>`}
    ${!isLive && html`<${Fold} label=${result(turn)} text=${turn.content} />`}
    ${!isLive && isLast && html`<p class="state"><button type="button" disabled=${isBusy}
      onClick=${() => answerTo(turn)}>Let the model answer</button></p>`}
  </article>`;
}

/** @param {Turn} turn */
function result({ tool_name, content, state, stats: { seconds, is_error } }) {
  if (state !== "done" && !content) return `${tool_name} was interrupted`;
  const facts = [`${tool_name} ${is_error ? "failed" : "returned"} ${plural(content.split("\n").length, "line")}`];
  if (seconds !== undefined) facts.push(`${seconds.toFixed(1)} s`);
  return facts.join(" · ");
}

/**
 * Whether a call may run. It can be allowed once the end of what would run has been in view.
 * @param {{turn: Turn, question: import("./types").Question}} props
 */
function Asked({ turn, question }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [isSeen, setSeen] = useState(false);
  const [isReady, setReady] = useState(false);
  const [reason, setReason] = useState("");
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
      ${question.parts.map(({ kind, text }) => html`<pre class=${kind}>${plain(text)}</pre>`)}
    </div>
    ${!isSeen && !isPhone() && html`<p class="hint">Scroll to its end before you allow it.</p>`}
    ${isPhone() ? html`<p class="hint">It can be allowed on the server's machine alone.</p>` : html`<p class="buttons">${allow("Allow once", "once")}${allow("Allow in this chat", "chat")}
      ${allow(`Always allow ${plain(question.always)}`, "always")}</p>`}
    <p class="buttons"><button type="submit" disabled=${!isReady}>No</button>
      <input type="text" aria-label="Why not" placeholder="Why not? The model is told." value=${reason}
        onInput=${(/** @type {any} */ event) => setReason(event.target.value)} /></p>
  </form>`;
}
