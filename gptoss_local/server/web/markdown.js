/**
 * Markdown of a model as nodes of the page. The text is hostile: HTML in it is shown as text, and
 * what comes of it is sanitised. Nothing of it loads anything; links open by a click.
 */

import MarkdownIt from "./vendor/markdown-it.js";
import DOMPurify from "./vendor/purify.js";
import { plain } from "./format.js";
import { addGithub } from "./github.js";
import { addColours, highlighted } from "./languages.js";
import { addMath, drawMath } from "./math.js";
import { drawnAs } from "./preview.js";
import { addSigns } from "./signs.js";
import { fitTables } from "./table.js";

const SAFE = /^(?:https?:\/\/|mailto:)/i;
const PREVIEW = '<button type="button" class="preview">Preview</button>';
const N_ROWS = 4; // of a table that grows, which are made together

const md = new MarkdownIt({ html: false, linkify: true, breaks: true, maxNesting: 60 });
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
md.validateLink = (/** @type {string} */ url) => SAFE.test(url.trim());
addMath(md);
addGithub(md);
addSigns(md);

/** @typedef {any} Token */

// As gptoss_local/talk/citations.py has it.
const CITATION =
  /【(\d{1,6})(?::\d{1,6})?†\s*(?:L\d{1,9}(?:\s*[-–—]\s*L?\d{1,9})?[^【】†\n`]{0,80}|source|)\s*(?:†[^【】†\n`]{0,200})?】/g;

md.core.ruler.push("citations", (/** @type {any} */ { tokens, env, Token }) => {
  for (const block of tokens) {
    if (block.type !== "inline" || !env.urls?.size || !block.content.includes("【")) continue;
    let depth = 0; // of links
    block.children = block.children.flatMap((/** @type {Token} */ token, /** @type {number} */ i) => {
      if (token.type === "link_open" || token.type === "link_close") depth += token.nesting;
      const before = i ? block.children[i - 1] : null;
      const isGlued = before?.nesting < 0 || before?.type === "code_inline"; // to a word that is marked up
      return token.type === "text" && !depth ? withLinks(token.content, isGlued, env.urls, Token) : [token];
    });
  }
});

/**
 * Make tokens of a text, in which citations of known pages are links.
 * @param {string} text @param {boolean} isGlued @param {Map<number, string>} urls @param {any} Token
 */
function withLinks(text, isGlued, urls, Token) {
  const made = (/** @type {string} */ type, /** @type {string} */ tag, /** @type {number} */ nesting, /** @type {object} */ fields) =>
    Object.assign(new Token(type, tag, nesting), fields);
  const found = /** @type {Token[]} */ ([]);
  let end = 0;
  for (const cited of text.matchAll(CITATION)) {
    const url = urls.get(Number(cited[1])) ?? "";
    const host = /^https?:\/\/(?:[^/?#]*@)?([^/?#@]+)/i.exec(url)?.[1];
    if (!host) continue;
    const before = text.slice(end, cited.index);
    const last = /** @type {string} */ (before.at(-1) ?? (found.length || isGlued ? "】" : " "));
    found.push(made("text", "", 0, { content: before + (/[\s([]/.test(last) ? "" : " ") }));
    found.push(made("link_open", "a", 1, { attrs: [["href", md.normalizeLink(url)]] }));
    found.push(made("text", "", 0, { content: `${host} ↗` }), made("link_close", "a", -1, {}));
    end = cited.index + cited[0].length;
  }
  return [...found, made("text", "", 0, { content: text.slice(end) })];
}

const { rules } = md.renderer;
const escape = md.utils.escapeHtml;

rules.fence = rules.code_block = (/** @type {Token[]} */ tokens, /** @type {number} */ i) => {
  const language = tokens[i].info.trim().split(/[\s{]/)[0] ?? "";
  const text = tokens[i].content;
  return (
    `<div class="code"><div class="code-head"><span>${escape(language)}</span>${drawnAs(language, text) && PREVIEW}` +
    '<button type="button" class="copy">Copy</button></div><pre tabindex="0"><code>' +
    `${highlighted(text, language) ?? escape(text)}</code></pre></div>`
  );
};
rules.table_open = (/** @type {Token[]} */ tokens, /** @type {number} */ i) =>
  '<div class="table-place"><div class="table-copy">Copy <button type="button" class="copy" aria-label="Copy as CSV">CSV</button>' +
  '<button type="button" class="copy" aria-label="Copy as Markdown">Markdown</button></div>' +
  `<div class="table" tabindex="0" role="group" aria-label="Table"><table dir="${tokens[i].attrGet("dir")}">`;
rules.table_close = () => "</table></div></div>";
rules.th_open = rules.td_open = (/** @type {Token[]} */ tokens, /** @type {number} */ i, /** @type {any} */ options) => {
  const side = /text-align:(\w+)/.exec(tokens[i].attrGet("style") ?? "")?.[1];
  const direction = tokens[i].attrGet("dir");
  tokens[i].attrs = [...(direction ? [["dir", direction]] : []), ...(side ? [["class", side]] : [])]; // the page allows no style
  return md.renderer.renderToken(tokens, i, options);
};
rules.image = (/** @type {Token[]} */ tokens, /** @type {number} */ i) => {
  const address = tokens[i].attrGet("src") ?? "";
  const words = [tokens[i].content, address].filter(Boolean).map(escape).join(" · ");
  return SAFE.test(address) ? `<a href="${escape(address)}">image: ${words}</a>` : `image: ${words}`;
};

const PURE = {
  ALLOWED_TAGS: [
    ..."a b blockquote br button code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark ol p".split(" "),
    ..."pre s small span strong sub summary sup table tbody td th thead tr u ul".split(" "),
  ],
  ALLOWED_ATTR: "href class start type tabindex role aria-label dir open".split(" "),
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: /** @type {const} */ (true),
};

DOMPurify.addHook("afterSanitizeAttributes", (/** @type {Element} */ node) => {
  const address = node.getAttribute("href");
  if (address === null) return;
  if (node.nodeName !== "A" || !SAFE.test(address)) return node.removeAttribute("href");
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
  node.setAttribute("title", address);
});

/** Make sanitised nodes of HTML. @param {string} text */
const pure = (text) => DOMPurify.sanitize(text, PURE);

/**
 * A part of a text, from one top level element to the next.
 * @typedef {object} Block
 * @property {number} key
 * @property {string} source
 * @property {() => DocumentFragment} make  makes its nodes
 * @property {string | null} code  of a block of code that is still open: its text so far
 * @property {string} language
 * @property {boolean} grows
 * @property {Block[]} [rows]  parts of a table that grows: each is a table with some of its rows
 */

/** A text that grows. Blocks that are finished are parsed and made once. */
export class Growing {
  /** @type {Block[]} */
  #finished = [];
  /** @type {Block[]} */
  #open = []; // those that the next words may change
  #settled = ""; // the text of the finished blocks, and of finished rows of an open table
  /** @type {Block[]} */
  #rows = []; // of that table
  #head = ""; // its first two lines
  #env = /** @type {{references?: any, isOpen?: boolean, urls?: Map<number, string>}} */ ({}); // definitions of links
  #isComplete = false;
  /** @type {Map<number, string>} */
  #urls; // of what is cited

  /** @param {Page[]} [pages] what the text may cite */
  constructor(pages = []) {
    this.#urls = new Map(pages.map(([cursor, url]) => [cursor, url]));
  }

  /**
   * Return the blocks of the text so far.
   * @param {string} text @param {boolean} isComplete @returns {Block[]}
   */
  update(text, isComplete) {
    const clean = plain(text.replace(/\r\n?/g, "\n"));
    const hasDefinitions = isComplete && !this.#isComplete && this.#env.references; // for what is above
    this.#isComplete = isComplete;
    if (hasDefinitions || !clean.startsWith(this.#settled)) {
      [this.#finished, this.#open, this.#settled, this.#env] = [[], [], "", {}];
      [this.#rows, this.#head] = [[], ""];
    }
    this.#env.isOpen = !isComplete;
    this.#env.urls = this.#urls;
    const tail = this.#head + clean.slice(this.#settled.length);
    const groups = topLevel(md.parse(tail, this.#env));
    const starts = lineStarts(tail);
    const offsets = [...groups.map((group) => starts[group[0].map[0]] ?? tail.length), tail.length];
    const nBefore = this.#finished.length;
    const blocks = groups.map((group, k) => {
      const isClosed = isComplete || k < groups.length - 1;
      const block = this.#block(nBefore + k, group, tail.slice(offsets[k], offsets[k + 1]), isClosed);
      return k === 0 && this.#rows.length ? withRows([...this.#rows, block]) : block;
    });
    // The last block is open, and the one above it, too, while the first line of the last one is
    // not complete: `2` becomes `2. two`, which continues a list.
    const nFinished = Math.max(0, groups.length - (tail.includes("\n", offsets[groups.length - 1]) ? 1 : 2));
    this.#finished.push(...blocks.slice(0, nFinished));
    this.#open = blocks.slice(nFinished);
    if (nFinished) {
      this.#settled = clean.slice(0, this.#settled.length + (offsets[nFinished] ?? 0) - this.#head.length);
      [this.#rows, this.#head] = [[], ""];
    }
    const isTable = !isComplete && groups[nFinished]?.[0].type === "table_open" && groups.length === 1 + nFinished;
    if (isTable && this.#settleRows(clean.slice(this.#settled.length), nFinished ? 0 : groups[0]?.[0].map[0])) return this.update(text, false);
    return [...this.#finished, ...this.#open];
  }

  /** Finish rows of an open table: its next ones are parsed alone. @param {string} rest @param {number} nBefore lines */
  #settleRows(rest, nBefore) {
    const starts = lineStarts(rest);
    const startOf = (/** @type {number} */ line) => starts[line] ?? rest.length;
    let line = this.#head ? 0 : nBefore + 2;
    const first = line;
    for (; startOf(line + N_ROWS) < rest.length; line += N_ROWS) {
      this.#head ||= rest.slice(starts[nBefore], starts[line]);
      const source = this.#head + rest.slice(starts[line], starts[line + N_ROWS]);
      this.#rows.push(this.#block(this.#finished.length, md.parse(source, this.#env), source, true));
    }
    if (line > first) this.#settled += rest.slice(0, starts[line]);
    return line > first;
  }

  /** @param {number} key @param {Token[]} tokens @param {string} text @param {boolean} isClosed @returns {Block} */
  #block(key, tokens, text, isClosed) {
    const [first] = tokens;
    const isOpen = !isClosed && first.type === "fence" && !isFenceClosed(text, first.markup);
    const source = tokens.some(({ type }) => type === "math_open") ? `${text}\0` : text; // drawn otherwise once it is closed
    const env = this.#env;
    const before = this.#open.find((block) => block.key === key);
    if (before?.source === source && (before.code !== null) === isOpen) return before;
    const make = () => {
      const nodes = pure(md.renderer.render(tokens, md.options, env));
      drawMath(nodes);
      addColours(nodes, pure);
      for (const list of nodes.querySelectorAll("ol")) [...list.children].forEach((item, k) => (/** @type {HTMLLIElement} */ (item).value = list.start + k));
      fitTables(nodes);
      return nodes;
    };
    const language = first.info?.trim().split(/[\s{]/)[0] ?? "";
    return { key, source, make, code: isOpen ? first.content : null, language, grows: !isClosed };
  }
}

/** Make one table of parts that have the same head. @param {Block[]} rows @returns {Block} */
function withRows(rows) {
  const [first, ...others] = /** @type {[Block, ...Block[]]} */ (rows);
  const make = () => {
    const made = first.make();
    for (const part of others) made.querySelector("tbody")?.append(...part.make().querySelectorAll("tbody > tr"));
    return made;
  };
  return { ...first, source: rows.map((part) => part.source).join(""), make, rows, grows: rows.some((part) => part.grows) };
}

/** @param {string} source @param {string} markup */
function isFenceClosed(source, markup) {
  const end = source.trimEnd().split("\n");
  const last = end.at(-1)?.trim() ?? "";
  return end.length > 1 && last.startsWith(markup) && !last.replaceAll(markup[0] ?? "", "");
}

/** Group tokens by the top level element that they belong to. @param {Token[]} tokens @returns {Token[][]} */
function topLevel(tokens) {
  const groups = [];
  for (let start = 0, i = 0; i < tokens.length; i++) {
    if (tokens[i].level || tokens[i].nesting > 0) continue;
    groups.push(tokens.slice(start, i + 1));
    start = i + 1;
  }
  return groups;
}

/** Return where lines begin. @param {string} text */
const lineStarts = (text) => [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];
