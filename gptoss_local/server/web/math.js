/** Mathematics in Markdown: `\( \)`, `\[ \]`, `$ $` and `$$ $$` as MathML. Dollar amounts are not. */

import "./vendor/katex.js";

const katex = /** @type {any} */ (globalThis).katex;

const INLINE =
  /\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$((?:\\.|[^$\\])+?)\$\$|(?<![\w$\\])\$((?=[^\s$])(?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\w$])/sy;
const DELIMITER = /\\[()[\]]|\\\*?\.(?=[\w.])/y;
const CLOSERS = /** @type {Record<string, string>} */ ({ "\\[": "\\]", $$: "$$" });
const LONGEST = 10_000; // characters of a formula

/** Add the rules to a parser. @param {any} md */
export function addMath(md) {
  md.inline.ruler.before("escape", "math", inlineRule);
  md.block.ruler.before("fence", "math", blockRule, { alt: ["paragraph", "blockquote", "list"] });
  md.renderer.rules.math = (/** @type {any[]} */ tokens, /** @type {number} */ i) =>
    render(tokens[i].info, tokens[i].block || /^(?:\\\[|\$\$)/.test(tokens[i].content), tokens[i].content);
  md.renderer.rules.math_open = (/** @type {any[]} */ tokens, /** @type {number} */ i) => source(tokens[i].content);
  const source = (/** @type {string} */ text) => `<code class="tex">${md.utils.escapeHtml(text.trim())}</code>`;
  /** @param {string} tex @param {boolean} isDisplay @param {string} written */
  function render(tex, isDisplay, written) {
    try {
      if (tex.length > LONGEST) throw new RangeError("too long");
      const math = katex.renderToString(tex, {
        output: "mathml",
        displayMode: isDisplay,
        strict: "ignore",
        trust: false,
        maxExpand: 300,
        maxSize: 20,
      });
      return isDisplay ? `<div class="math" tabindex="0" role="group" aria-label="Formula">${math}</div>` : math;
    } catch {
      return source(written);
    }
  }
}

/**
 * Take a formula, or a delimiter without its partner, which would lose its backslash.
 * @param {any} state
 * @param {boolean} silent
 */
function inlineRule(state, silent) {
  if (!"\\$".includes(state.src[state.pos])) return false;
  INLINE.lastIndex = DELIMITER.lastIndex = state.pos;
  const formula = INLINE.exec(state.src);
  const found = formula ?? DELIMITER.exec(state.src);
  if (!found || state.pos + found[0].length > state.posMax) return false;
  if (!silent) {
    const token = state.push(formula ? "math" : "text", "", 0);
    token.content = found[0];
    token.info = found.slice(1).find((part) => part !== undefined) ?? "";
  }
  state.pos += found[0].length;
  return true;
}

/**
 * Take lines from one that begins with `\[` or `$$` to one that ends with its partner.
 * @param {any} state
 * @param {number} start
 * @param {number} end
 * @param {boolean} silent
 */
function blockRule(state, start, end, silent) {
  if (state.sCount[start] - state.blkIndent >= 4) return false;
  let closer = "";
  for (let line = start; line < end; line++) {
    if (state.isEmpty(line) || state.sCount[line] < state.blkIndent) return false;
    let text = state.getLines(line, line + 1, state.blkIndent, false).trim();
    if (!closer) {
      closer = CLOSERS[text.slice(0, 2)] ?? "";
      if (!closer) return false;
      text = text.slice(2);
    }
    if (!text.endsWith(closer)) continue;
    if (!silent) {
      const token = state.push("math", "", 0);
      token.block = true;
      token.map = [start, line + 1];
      token.content = state.getLines(start, line + 1, state.blkIndent, false);
      token.info = token.content.trim().slice(2, -2);
    }
    state.line = line + 1;
    return true;
  }
  if (!closer || !state.env.isOpen) return false;
  if (silent) return true;
  const token = state.push("math_open", "code", 0); // its end has not arrived yet
  token.map = [start, end];
  token.content = state.getLines(start, end, state.blkIndent, false);
  state.line = end;
  return true;
}
