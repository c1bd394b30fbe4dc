/**
 * What models write beside CommonMark, as GitHub reads it: `<br>` and a few other tags, `<details>`, lists of tasks,
 * footnotes and callouts. All other HTML stays text. Each block has the direction of its words.
 */

const TAG = /<(?:(br) ?\/?|(\/?)(b|del|em|i|ins|kbd|mark|s|small|strong|sub|sup|u))>/iy;
const DETAILS = /^<details( open)?>\s*(?:<summary>(.*?)<\/summary>)?$/i;
const SUMMARY = /^<summary>(.*?)<\/summary>$/i;
const NOTE = /^\[\^([^\]\s]{1,30})\]:\s/;
const CITED = /\[\^([^\]\s]{1,30})\](?!:)/y;
const CALLOUT = /^\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*(?:\n|$)/i;
const TASK = /^\[([ x])\](?= )/i;
const IS_RIGHT_TO_LEFT = /^[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const CELL = /^t[hd]_open$/;
const LEAVES = /^(?:p|h\d|summary)$/;
const CODE = /(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)/g;
const [ANY, INNER, BAR] = [/(?<!\\)\|/g, /(?<!\\|^)\|(?!\s*$)/g, "\x01"]; // a sign that no text has

/** @typedef {any} Token */

/** Add the rules to a parser. @param {any} md */
export function addGithub(md) {
  const blocks = { alt: ["paragraph", "blockquote", "list"] };
  md.inline.ruler.before("autolink", "tags", tagRule);
  md.inline.ruler.before("link", "cited", citedRule);
  md.block.ruler.before("table", "bars", barsRule, { alt: ["paragraph", "reference"] });
  md.block.ruler.before("fence", "details", detailsRule, blocks);
  md.block.ruler.before("reference", "note", noteRule, blocks);
  md.core.ruler.after("block", "bars", (/** @type {any} */ { tokens }) => {
    for (const token of tokens) token.content = token.content.replaceAll(BAR, "|");
  });
  md.core.ruler.before("inline", "callouts and tasks", calloutsAndTasks);
  md.core.ruler.push("directions", directions);
}

/** Take a line break, or a tag that is closed in the same text. @param {any} state @param {boolean} silent */
function tagRule(state, silent) {
  TAG.lastIndex = state.pos;
  const found = TAG.exec(state.src);
  if (!found || TAG.lastIndex > state.posMax) return false;
  const [isBreak, isClosing, tag] = [found[1], found[2], found[3]?.toLowerCase()];
  const open = /** @type {string[]} */ (state.openTags ??= []);
  const isPart = isClosing ? open.at(-1) === tag : state.src.toLowerCase().includes(`</${tag}>`, TAG.lastIndex);
  if (!isBreak && !isPart) return false;
  if (!silent) {
    if (isBreak) state.push("hardbreak", "br", 0);
    else if (isClosing) state.push("tag_close", open.pop(), -1);
    else open.push(state.push("tag_open", tag, 1).tag);
  }
  state.pos = TAG.lastIndex;
  return true;
}

/** Take the sign of a footnote. @param {any} state @param {boolean} silent */
function citedRule(state, silent) {
  CITED.lastIndex = state.pos;
  const found = CITED.exec(state.src);
  if (!found || CITED.lastIndex > state.posMax) return false;
  if (!silent) {
    state.push("sup_open", "sup", 1);
    state.push("text", "", 0).content = found[1];
    state.push("sup_close", "sup", -1);
  }
  state.pos = CITED.lastIndex;
  return true;
}

/** @param {any} state @param {number} line @returns {string} */
const lineOf = (state, line) => state.getLines(line, line + 1, state.blkIndent, false).trim();

/** Push tokens of a block of text. @param {any} state @param {string} tag @param {string} content @param {number[]} map */
function pushText(state, tag, content, map) {
  const open = state.push(tag === "p" ? "paragraph_open" : `${tag}_open`, tag, 1);
  Object.assign(state.push("inline", "", 0), { content, map, children: [] });
  state.push(tag === "p" ? "paragraph_close" : `${tag}_close`, tag, -1);
  return Object.assign(open, { map });
}

/**
 * Take the text of a footnote.
 * @param {any} state @param {number} start @param {number} end @param {boolean} silent
 */
function noteRule(state, start, end, silent) {
  const found = state.sCount[start] - state.blkIndent < 4 && NOTE.exec(lineOf(state, start));
  if (!found || silent) return !!found;
  let last = start + 1;
  while (last < end && !state.isEmpty(last) && !NOTE.test(lineOf(state, last))) last++;
  const text = state.getLines(start, last, state.blkIndent, false).trim().slice(found[0].length);
  pushText(state, "p", `[^${found[1]}] ${text.trim()}`, [start, last]).attrSet("class", "footnote");
  state.line = last;
  return true;
}

/**
 * Take `<details>` with the Markdown in it, up to its end or that of the text.
 * @param {any} state @param {number} start @param {number} end @param {boolean} silent
 */
function detailsRule(state, start, end, silent) {
  const found = state.sCount[start] - state.blkIndent < 4 && DETAILS.exec(lineOf(state, start));
  if (!found || silent) return !!found;
  let [last, depth] = [start + 1, 1];
  for (; last < end; last++) {
    if (state.sCount[last] < state.blkIndent && !state.isEmpty(last)) break;
    const text = lineOf(state, last);
    if (DETAILS.test(text)) depth++;
    else if (/^<\/details>$/i.test(text) && !--depth) break;
  }
  const open = state.push("details_open", "details", 1);
  open.map = [start, last];
  if (found[1]) open.attrSet("open", "");
  const below = found[2] === undefined && start + 1 < last ? SUMMARY.exec(lineOf(state, start + 1)) : null;
  const summary = found[2] ?? below?.[1];
  if (summary !== undefined) pushText(state, "summary", summary, [start, start + 1]);
  const before = [state.parentType, state.lineMax];
  [state.parentType, state.lineMax] = ["blockquote", last];
  state.md.block.tokenize(state, start + (below ? 2 : 1), last);
  [state.parentType, state.lineMax] = before;
  state.push("details_close", "details", -1);
  state.line = Math.min(end, last + (depth ? 0 : 1));
  return true;
}

/**
 * Hide bars that end no cell of a table, as in tui/markdown_rows.py: in code, and of cells that Markdown would drop.
 * @param {any} state @param {number} start @param {number} end
 */
function barsRule(state, start, end) {
  const nCells = (/** @type {string} */ text) => [...text.matchAll(INNER)].length + 1;
  const n = start + 1 < end && /^[|:\s-]+$/.test(lineOf(state, start + 1)) ? nCells(lineOf(state, start + 1)) : 0;
  for (let line = start; n && line < end && !state.isEmpty(line); line++) {
    const at = state.bMarks[line] + state.tShift[line];
    const text = state.src.slice(at, state.eMarks[line]);
    let k = 0;
    if (nCells(text) <= n) continue;
    const whole = text.replace(CODE, (/** @type {string} */ code) => code.replace(ANY, BAR));
    const least = nCells(whole) === n || line === start ? whole : text.replace(INNER, (/** @type {string} */ bar) => (++k < n ? bar : BAR));
    state.src = state.src.slice(0, at) + least + state.src.slice(at + text.length);
  }
  return false;
}

/** Make callouts of quotes and boxes of tasks. @param {any} state */
function calloutsAndTasks({ tokens, Token }) {
  for (let i = 0; i + 2 < tokens.length; i++) {
    const [first, , text] = tokens.slice(i, i + 3);
    if (text.type !== "inline") continue;
    const callout = first.type === "blockquote_open" && CALLOUT.exec(text.content);
    const task = first.type === "list_item_open" && TASK.exec(text.content);
    if (task) {
      first.attrSet("class", "task");
      text.content = (task[1] === " " ? "☐" : "☑") + text.content.slice(3);
    }
    if (!callout) continue;
    const kind = callout[1]?.toLowerCase() ?? "";
    first.attrSet("class", `callout ${kind}`);
    text.content = text.content.slice(callout[0].length);
    const title = Object.assign(new Token("inline", "", 0), { content: `**${kind[0]?.toUpperCase()}${kind.slice(1)}**`, children: [] });
    const made = [new Token("paragraph_open", "p", 1), title, new Token("paragraph_close", "p", -1)];
    for (const each of made) each.level = first.level + 1 + (each === title ? 1 : 0);
    tokens.splice(i + 1, text.content ? 0 : 3, ...made);
  }
}

/** Let words decide: in a leaf the browser does it, in a list or a quote its first letter. @param {any} state */
function directions({ tokens }) {
  let [letter, balance] = ["", 0]; // of a table's cells
  for (const token of tokens.toReversed()) {
    if (token.type === "inline") {
      letter = /\p{L}/u.exec(token.content)?.[0] ?? "";
      balance += !letter ? 0 : IS_RIGHT_TO_LEFT.test(letter) ? 1 : -1;
    } else if (token.type === "table_close") balance = 0;
    else if (token.type === "table_open") token.attrSet("dir", balance > 0 ? "rtl" : "ltr");
    else if (CELL.test(token.type)) letter && token.attrSet("dir", IS_RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr");
    else if (token.nesting === 1 && LEAVES.test(token.tag)) token.attrSet("dir", "auto");
    else if (token.nesting === 1 && IS_RIGHT_TO_LEFT.test(letter)) token.attrSet("dir", "rtl");
  }
}
