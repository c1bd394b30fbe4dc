/** The turns of the open chat. Follows an answer while the user is at the end. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { choose, shown, streaming } from "./actions.js";
import { isEdited } from "./composer.js";
import { state } from "./store.js";
import { callOf, lastPatch, pagesBefore, versions } from "./tree.js";
import { Answer, TurnView } from "./turn.js";
import { closeDialog, Dialog, IconButton } from "./ui.js";

const PAGE = 40; // turns that are painted at first
const NEAR = 48; // pixels
const EARLY = 600; // pixels from the top at which earlier messages come
const END = 1e9;

let isPrinting = false;
addEventListener("beforeprint", () => (isPrinting = true));
addEventListener("afterprint", () => (isPrinting = false));

/** Whether the page is printed now: all of the chat is on paper. */
export const isPrinted = () => isPrinting;

export function Transcript() {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const follows = useRef(true);
  const top = useRef(0); // where the last scroll ended
  const above = useRef(0); // what must stay where it is while earlier messages are put above it
  const [isAway, setAway] = useState(false);
  const [nMore, setMore] = useState(0);
  const turns = shown();
  const sought = turns.findIndex((turn) => turn.id === state.sought);
  const start = Math.max(0, Math.min(turns.length - PAGE - nMore, sought >= 0 ? sought : Infinity));
  const live = streaming();
  const undoable = state.tools.some(({ name }) => name.startsWith("Work in ")) ? lastPatch(turns) : 0;
  useLayoutEffect(() => {
    if (state.isSent) [follows.current, state.isSent] = [true, false];
    else if (sought < 0) return;
    const target = sought >= 0 && document.getElementById(`turn-${state.sought}`);
    if (target) {
      target.scrollIntoView({ block: "nearest" });
      state.sought = null;
      follows.current = isAtEnd();
    } else follow();
  });
  useLayoutEffect(() => {
    if (state.sought === null) follows.current = true;
    setMore(0);
    const grown = new ResizeObserver(follow); // no layout is forced while an answer streams
    const { current } = scroller;
    for (const each of current ? [current, ...current.children] : []) grown.observe(each);
    return () => grown.disconnect();
  }, [state.chatId]);
  useEffect(() => {
    const all = () => setMore(Infinity);
    addEventListener("beforeprint", all);
    return () => removeEventListener("beforeprint", all);
  }, []);
  useLayoutEffect(() => {
    const { current } = scroller;
    if (!current || !above.current) return;
    current.scrollTop = current.scrollHeight - above.current;
    top.current = current.scrollTop;
    above.current = 0;
  }, [start]);
  const showEarlier = () => {
    const { scrollHeight = 0, scrollTop = 0 } = scroller.current ?? {};
    [follows.current, above.current] = [false, scrollHeight - scrollTop];
    setMore(turns.length - PAGE - start + PAGE);
  };
  function follow() {
    if (follows.current && scroller.current) scroller.current.scrollTop = END;
  }
  function isAtEnd() {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = scroller.current ?? {};
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }
  const onScroll = () => {
    const { scrollTop = 0 } = scroller.current ?? {};
    if (isAtEnd()) follows.current = true;
    else if (scrollTop < top.current) follows.current = false; // by the user: what grows moves nothing up
    top.current = scrollTop;
    if (scrollTop < EARLY && start > 0 && !above.current && !follows.current) showEarlier();
    setAway(!follows.current);
  };
  const toEnd = () => [(follows.current = true), scroller.current?.scrollTo({ top: scroller.current.scrollHeight })];
  return html`<div class="transcript" ref=${scroller} onScroll=${onScroll} tabindex="0" role="region"
    aria-label="Messages">
      <div class="turns">
        ${start > 0 && html`<button type="button" class="earlier" onClick=${showEarlier}>Show earlier messages</button>`}
        ${turns.slice(start).map(
          (turn, k) => html`<${TurnView} key=${turn.id} turn=${turn}
            ids=${same(`ids-${turn.id}`, versions(state.turns, turn))}
            pages=${same(`pages-${turn.id}`, pagesBefore(turns, start + k))}
            models=${same("models", state.models.map(({ name }) => name))}
            call=${callOf(turns, start + k)} isStep=${turns[start + k + 1]?.role === "tool"} isLost=${turn === live && state.isLost}
            isLast=${start + k === turns.length - 1} isEdited=${isEdited(turn)} isBusy=${!!live || !turns.at(-1)?.id} canUndo=${turn.id === undoable}
            progress=${turn === live ? state.progress[turn.id] : undefined} />`,
        )}
      </div>
    </div>
    ${isAway && html`<${IconButton} name="down" label="To the end" class="icon-button to-end" onClick=${toEnd} />`}`;
}

/** The versions of an answer side by side, of two models or of one; one is kept. @param {{turn: Turn}} props */
export function Compare({ turn }) {
  const ids = versions(state.turns, turn);
  const answers = ids.map((id) => /** @type {Turn} */ (state.turns.get(id)));
  const keep = async (/** @type {number} */ id) => (await choose(id)) && closeDialog();
  return html`<${Dialog} title="Side by side" size="wide compare"><div class="columns">
    ${answers.map((each, k) => html`<section aria-label=${`Version ${k + 1}`}>
      <header><h3>${each.model || "Unknown model"}</h3>
        <button type="button" class="primary" onClick=${() => keep(each.id)}>Keep</button></header>
      <${Answer} turn=${each} pages=${[]} progress=${state.progress[each.id]} />
    </section>`)}
  </div><//>`;
}

/** Lists by name, so that one that has not changed stays the same value. @type {Map<string, any[]>} */
const known = new Map();

/** @template {any[]} T @param {string} name @param {T} list @returns {T} */
function same(name, list) {
  const before = known.get(name);
  if (before && before.join() === list.join()) return /** @type {T} */ (before);
  known.set(name, list);
  return list;
}
