/** The tree of a chat's turns, and the folded parts of a message. Pure. */

import { codePoints, count } from "./format.js";

/**
 * Return the turns from the first one down to a leaf.
 * @param {Map<number, Turn>} turns @param {number | null} leafId
 */
export function branch(turns, leafId) {
  const found = [];
  let turn = turns.get(leafId ?? 0);
  while (turn) {
    found.push(turn);
    turn = turns.get(turn.parent_id ?? 0);
  }
  return found.reverse();
}

/** Return the ids of a turn's versions, oldest first. @param {Map<number, Turn>} turns @param {Turn} turn */
export function versions(turns, turn) {
  const found = [];
  for (const other of turns.values()) if (other.parent_id === turn.parent_id) found.push(other.id);
  return found.sort((a, b) => a - b);
}

/** Return the newest turn below a turn, or itself. @param {Map<number, Turn>} turns @param {number} id */
export function newestBelow(turns, id) {
  const below = new Set([id]);
  for (const turn of [...turns.values()].sort((a, b) => a.id - b.id)) {
    if (below.has(turn.parent_id ?? 0)) below.add(turn.id);
  }
  return Math.max(...below);
}

/** Return the pages that a turn of a branch may cite. @param {Turn[]} turns @param {number} n */
export const pagesBefore = (turns, n) => turns.slice(0, n).flatMap((turn) => turn.stats.pages ?? []);

/** Return the call that a turn answers. @param {Turn[]} turns @param {number} n */
export function callOf(turns, n) {
  const asked = turns.findLastIndex((turn, k) => k < n && turn.role !== "tool");
  return turns[n]?.role === "tool" ? turns[asked]?.tool_calls[n - asked - 1] : undefined;
}

/** Return the id of the last patch of a branch that was not taken back. @param {Turn[]} turns */
export function lastPatch(turns) {
  const made = /** @type {number[]} */ ([]);
  for (const [n, { id, tool_name, state, stats }] of turns.entries()) {
    if (tool_name !== "apply_patch" || state !== "done" || stats.is_error) continue;
    if (callOf(turns, n)) made.push(id);
    else made.pop();
  }
  return made.at(-1);
}

/** Return whether there is a part of an answer that can be continued. @param {Turn} turn */
export function wasCut(turn) {
  const isAtLimit = turn.state === "done" && turn.stats.done_reason === "length";
  const isCut = turn.state === "stopped" || turn.state === "failed" || isAtLimit;
  return turn.role === "assistant" && isCut && !!(turn.content || turn.reasoning) && !turn.tool_calls.length;
}

/**
 * Return the parts of a message: text that is shown, and folds with their labels.
 * @param {Turn} turn @returns {Chip[]}
 */
export function parts(turn) {
  const characters = turn.stats.folds?.length ? Array.from(turn.content) : [];
  const cut = (/** @type {number} */ a, /** @type {number} */ b) => characters.slice(a, b).join("");
  if (!characters.length) return [{ label: "", text: turn.content }];
  const found = [];
  let end = 0;
  for (const [start, stop, label] of turn.stats.folds ?? []) {
    if (!(end <= start && start < stop && stop <= characters.length)) continue;
    if (start > end) found.push({ label: "", text: cut(end, start) });
    found.push({ label, text: cut(start, stop) });
    end = stop;
  }
  if (end < characters.length) found.push({ label: "", text: cut(end, characters.length) });
  return found;
}

/**
 * Put a message together: first what is folded, then what was typed.
 * @param {Chip[]} chips @param {string} typed
 * @returns {{content: string, folds: Fold[]}}
 */
export function compose(chips, typed) {
  /** @type {Fold[]} */
  const folds = [];
  let content = "";
  for (const { label, text } of chips) {
    const start = codePoints(content);
    folds.push([start, start + codePoints(text), label]);
    content += text.endsWith("\n") ? `${text}\n` : `${text}\n\n`;
  }
  content = (content + typed.trim()).trimEnd();
  const length = codePoints(content);
  return { content, folds: folds.map(([a, b, label]) => [a, Math.min(b, length), label]) };
}

/**
 * Take a message apart to edit it. Folds in the middle of the text stay where they are, as text.
 * @param {Turn} turn
 */
export function takeApart(turn) {
  const rest = parts(turn).filter((part) => part.label || part.text.trim());
  const chips = [];
  while (rest[0]?.label) chips.push(/** @type {Chip} */ (rest.shift()));
  const after = [];
  while (rest.at(-1)?.label) after.unshift(/** @type {Chip} */ (rest.pop()));
  return { chips: [...chips, ...after], typed: rest.map((part) => part.text).join("").trim() };
}

/** Say how much of the context is in use. @param {Turn[]} turns @param {number} nCtx */
export function contextText(turns, nCtx) {
  const last = turns.findLast((turn) => turn.role === "assistant" && turn.stats.prompt_eval_count);
  const used = last ? (last.stats.prompt_eval_count ?? 0) + (last.stats.eval_count ?? 0) : 0;
  const share = nCtx ? Math.min(1, used / nCtx) : 0;
  const words = nCtx ? `${count(used)}/${count(nCtx)} (${Math.round(100 * share)} %)` : count(used);
  return { used, share, words };
}
