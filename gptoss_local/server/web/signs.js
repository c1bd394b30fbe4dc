/**
 * Which stars, underscores and backslashes of a text are markup, as in tui/markdown_signs.py, where
 * it is explained; all others are shown as they were written.
 */

const QUOTED = /(["'])\*[^*"'\n]+\*\1/y;
const POWER = /^(?:[=([{_]|[-+~][\p{L}\p{N}_])/u;
const STOP = /^[.,;:!?…%](?![\p{L}\p{N}_])/u;
const ESCAPE = /\\(?:[*_`[\]|](?!\\[a-zA-Z0-9])|\$(?=\d)|!(?=\[)|<(?=[a-zA-Z/!])|&(?=#?\w+;)|~(?=\\?~))/y;
const ESCAPE_AT_START = /\\[#>+=~.)-]/y;
const PATH = /(?:^|[^\\])\\[a-zA-Z0-9]|^[^\p{L}\p{N}_]*(?:[a-zA-Z]:|%[\p{L}\p{N}_]+%)(?:$|\\)|^\\\\|^\^/u;
const WORD = /\*\*(?:\p{L}+\*\*(?=-?\p{L})|\/[^\s*]*[^\s*/]\*\*(?![\p{L}\p{N}_*/]))|\*(?:\p{L}|\([^*()]+\))\*(?=-\p{L}{2}|(?:th|st|[nr]d)(?![\p{L}\p{N}_])|[²³¹\u2070-\u209c])/uy;

/** @param {any} md */
export function addSigns(md) {
  md.inline.ruler.before("escape", "backslash", backslash);
  md.inline.ruler.before("emphasis", "stars", stars);
}

/** @param {any} state @param {boolean} silent */
function stars(state, silent) {
  const sign = state.src[state.pos];
  if ((sign !== "*" && sign !== "_") || silent) return false;
  const start = state.pos;
  while (state.pos < state.posMax && state.src[state.pos] === sign) state.pos++;
  const n = state.pos - start;
  const [open, close] = sign === "_" ? [false, false] : ends(state.src, start, state.pos);
  if (!open && !close) {
    state.pending += sign.repeat(n);
    return true;
  }
  for (let i = 0; i < n; i++) {
    state.push("text", "", 0).content = sign;
    state.delimiters.push({ marker: 0x2a, length: n, token: state.tokens.length - 1, end: -1, open, close });
  }
  return true;
}

/**
 * Return whether a run of stars may open emphasis, and whether it may close it.
 * @param {string} text @param {number} start @param {number} end @returns {[boolean, boolean]}
 */
function ends(text, start, end) {
  const before = [...text.slice(Math.max(0, start - 2), start)].at(-1) ?? " ";
  const after = [...text.slice(end, end + 2)][0] ?? " ";
  const [left, right] = [kind(before), kind(after)];
  if (left === "quote" && right === "quote") return [false, false];
  if (end - start > 1) {
    const opens = word(text, start) > 0 || right !== "space" && !")]},;=/^|".includes(after) && left !== "word" && !")]}\\^_".includes(before);
    const isPower = (["word", "close"].includes(left) || before === "_") && POWER.test(text.slice(end, end + 2));
    const closes = left !== "space" && !"([{=/^|".includes(before) && right !== "word" && !isPower;
    return [opens, closes || (start > 1 && word(text, text.lastIndexOf("**", start - 2)) === end)];
  }
  const inner = ["word", "foreign", "quote", "symbol"];
  let opens = [...inner, "open"].includes(right) && ["space", "open", "dash", "cjk"].includes(left);
  const isEnd = ["space", "close", "dash", "cjk"].includes(right) || STOP.test(text.slice(end, end + 2));
  let closes = [...inner, "close", "stop"].includes(left) && isEnd;
  closes ||= start > 0 && word(text, text.lastIndexOf("*", start - 1)) === end;
  if (left === "quote") opens = quotedEnd(text, start - 1) > 0 && inner.includes(right);
  if (right === "quote") {
    const first = text.lastIndexOf("*", start - 1);
    closes = (first > 0 && quotedEnd(text, first - 1) === end + 1) || text.startsWith("'s", end);
  }
  return [opens, closes];
}

/** @param {string} text @param {number} at */
function word(text, at) {
  const isStart = at >= 0 && ["space", "open"].includes(kind([...text.slice(Math.max(0, at - 2), at)].at(-1) ?? " "));
  WORD.lastIndex = at;
  return isStart && WORD.test(text) ? WORD.lastIndex : -1;
}

/** @param {string} text @param {number} at */
function quotedEnd(text, at) {
  QUOTED.lastIndex = at;
  return QUOTED.test(text) ? QUOTED.lastIndex : -1;
}

/** @param {string} sign */
function kind(sign) {
  const code = sign.codePointAt(0) ?? 0;
  if (/\s/u.test(sign)) return "space";
  if (/[\p{L}\p{N}\p{M}]/u.test(sign)) return code < 0xe00 || (code >= 0x1e00 && code < 0x2000) ? "word" : "foreign";
  if (/[\p{Ps}\p{Pi}]/u.test(sign)) return "open";
  if (/[\p{Pe}\p{Pf}]/u.test(sign)) return "close";
  if ((code >= 0x3000 && code < 0x3040) || (code >= 0xff00 && code < 0xfff0)) return "cjk";
  if (/["']/.test(sign)) return "quote";
  if (STOP.test(sign)) return "stop";
  if (/\p{Pd}/u.test(sign) && sign !== "-") return "dash";
  return /[\p{So}\p{Sc}`]/u.test(sign) ? "symbol" : "other";
}

/** @param {any} state @param {boolean} silent */
function backslash(state, silent) {
  const { src: text, pos: at } = state;
  if (text[at] !== "\\" || at + 1 >= state.posMax || text[at + 1] === "\n") return false;
  const before = text.slice(0, at);
  const line = before.slice(before.lastIndexOf("\n") + 1).trim();
  [ESCAPE.lastIndex, ESCAPE_AT_START.lastIndex] = [at, at];
  if (ESCAPE.test(text) && !PATH.test(before.split(/\s/).at(-1) ?? "")) return false;
  if (ESCAPE_AT_START.test(text) && /^\d*$/.test(line)) return false;
  const n = text[at + 1] === "\\" ? 2 : 1;
  if (!silent) state.pending += text.slice(at, at + n);
  state.pos += n;
  return true;
}
