/**
 * Mathematics in Markdown: `\( \)`, `\[ \]`, `$ $`, `$$ $$` and bare environments as `\begin{align}`, drawn by KaTeX
 * with MathML beside it for screen readers. Dollar amounts are no formulas.
 */

import "./vendor/katex.js";
import "./vendor/mhchem.js"; // \ce and \pu

const katex = /** @type {any} */ (globalThis).katex;
const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/web/vendor/katex.css" });
document.head.append(style);
await new Promise((loaded) => (style.onload = style.onerror = loaded)); // without it each formula is seen twice

const INLINE =
  /\\begin\{([a-zA-Z]+\*?)\}.+?\\end\{\1\}|\\(?:ce|pu)\{(?:[^{}\n]|\{[^{}\n]*\})+\}|\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$((?:\\.|[^$\\])+?)\$\$|(?<![\w$\\])\$((?=[^\s$])(?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\w$])/sy;
const DELIMITER = /\\[()[\]]/y;
const BARE = /^\\(?:begin\{([a-zA-Z]+\*?)\}|(?:ce|pu)\{)/;
const CLOSERS = /** @type {Record<string, string>} */ ({ "\\[": "\\]", $$: "$$" });
const LONGEST = 10_000; // characters of a formula
const REGEX = /\.[*+?]|\\[dDsSwW](?![A-Za-z])|\(\?|\[\^(?!\\c)|(?:^|\[)\w*(?:a-z|A-Z|0-9)/; // as tui/markdown_math.py has it
const SCROLLS = /** @type {const} */ ([["tabindex", "0"], ["role", "group"], ["aria-label", "Formula"]]);
const HOW = { strict: "ignore", trust: false, maxExpand: 300, maxSize: 20 };
const MACROS = { // of packages that models expect
  ...{ "\\dv": "\\frac{\\mathrm{d}#1}{\\mathrm{d}#2}", "\\pdv": "\\frac{\\partial #1}{\\partial #2}" },
  ...{ "\\SI": "\\pu{#1 #2}", "\\qty": "\\pu{#1 #2}", "\\si": "\\pu{#1}" },
  "\\label": (/** @type {any} */ place) => (place.consumeArgs(1), ""),
};

/** Add the rules to a parser. @param {any} md */
export function addMath(md) {
  md.inline.ruler.before("escape", "math", inlineRule);
  md.block.ruler.before("fence", "math", blockRule, { alt: ["paragraph", "blockquote", "list"] });
  const written = (/** @type {string} */ kind) => (/** @type {any[]} */ tokens, /** @type {number} */ i) =>
    `<code class="${kind}">${md.utils.escapeHtml(tokens[i].content.trim())}</code>`;
  md.renderer.rules.math = written("tex whole");
  md.renderer.rules.math_open = written("tex");
}

/**
 * Draw the whole formulas of sanitised nodes in place of their TeX. KaTeX makes nodes, never HTML from what is
 * in a formula; one that it cannot read stays as it was written.
 * @param {DocumentFragment} nodes
 */
export function drawMath(nodes) {
  for (const place of nodes.querySelectorAll("code.tex.whole")) {
    const text = /** @type {string} */ (place.textContent);
    place.className = "tex";
    const [isDisplay, nDelimiter] = [/^(?:\\\[|\$\$|\\begin)/.test(text), BARE.test(text) ? 0 : /^\$[^$]/.test(text) ? 1 : 2];
    const tex = text.slice(nDelimiter, text.length - nDelimiter);
    if (!tex.trim() || text.length > LONGEST || REGEX.test(tex)) continue;
    const math = document.createElement(isDisplay ? "div" : "span");
    math.className = "math";
    if (isDisplay) for (const [name, value] of SCROLLS) math.setAttribute(name, value);
    try {
      katex.render(tex, math, { ...HOW, macros: { ...MACROS }, displayMode: isDisplay });
    } catch {
      continue;
    }
    for (const arrow of /** @type {NodeListOf<SVGElement>} */ (math.querySelectorAll("svg[style]")))
      arrow.style.width = arrow.getAttribute("width") ?? ""; // as its `style` says, which the page forbids
    place.replaceWith(math);
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
  }
  state.pos += found[0].length;
  return true;
}

/**
 * Take lines from one that begins with `\[`, `$$` or `\begin` to one that ends with its partner.
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
      const name = BARE.exec(text)?.[1];
      closer = name ? `\\end{${name}}` : (CLOSERS[text.slice(0, 2)] ?? "");
      if (!closer) return false;
      text = text.slice(2);
    }
    if (!text.endsWith(closer)) continue;
    if (!silent) {
      const token = state.push("math", "", 0);
      token.block = true;
      token.map = [start, line + 1];
      token.content = state.getLines(start, line + 1, state.blkIndent, false);
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
