/**
 * What is copied of a chat: it reads as it looks, in all browsers alike. Formulas are TeX, tables and lists are lines,
 * labels and buttons stay behind.
 */

import { copyText, SHOWN_MS } from "./ui.js";

const BLOCK = /^(?:P|H\d|UL|OL|LI|BLOCKQUOTE|DIV|PRE|TABLE|THEAD|TBODY|TR|TD|TH|DETAILS|SUMMARY|HR|ARTICLE)$/;
const LINES = /^(?:UL|OL|TABLE|THEAD|TBODY)$/;
const LEFT =
  "button, svg, form, iframe, .code-head, .turn-foot, .live, .state, .table-copy, .ran .hint, .turn > details > summary, details:not([open]) > :not(summary)";
const AS_TYPED = "pre, .raw, .math, .bubble p";
const KEPT = ["href", "start", "value", "dir"];
const MARKS = /** @type {Record<string, string>} */ ({ STRONG: "**", B: "**", EM: "*", I: "*", S: "~~", DEL: "~~", CODE: "`" });
const [END, CODE] = ["\0", "\x01"]; // of a block, and before its code: the page has no such signs
const SPACE = new RegExp(`[\\s${END}${CODE}]+`, "g");

/** Leave out what does not belong to a text, and write its formulas as TeX. @param {Element} place */
function tidied(place) {
  for (const each of place.querySelectorAll(LEFT)) each.remove();
  for (const math of place.querySelectorAll(".math")) {
    const tex = math.querySelector("annotation")?.textContent.trim() ?? "";
    const sign = math.nodeName === "SPAN" ? "$" : /^\\begin\{(?:align|equation|gather|alignat)\b/.test(tex) ? "" : "$$";
    math.replaceChildren(sign + tex + sign);
  }
  return place;
}

/** Join what is between the ends of blocks. @param {string} text @param {string} between */
const joined = (text, between) =>
  text.split(END).map((part) => (part[0] === CODE ? part.slice(1) : part.trim())).filter((part) => part.trim()).join(between);

/** Write a node as it reads, or with the signs of Markdown. @param {Node} node @param {boolean} [isMarked] @returns {string} */
function read(node, isMarked) {
  if (node instanceof Text) {
    if (node.parentElement?.closest(AS_TYPED)) return node.data;
    const isGap = [node.previousSibling, node.nextSibling].some((next) => !next || BLOCK.test(next.nodeName));
    const text = node.data.replace(/\s+/g, " ");
    return isGap && text === " " ? "" : node.previousSibling?.nodeName === "BR" ? text.trimStart() : text;
  }
  const { nodeName: name } = node;
  if (name === "BR" || name === "HR") return name === "BR" ? "\n" : `${END}---${END}`;
  if (name === "TR") return cells(/** @type {Element} */ (node), isMarked).join("\t");
  const parts = [...node.childNodes].map((each) => read(each, isMarked));
  if (LINES.test(name)) return END + parts.filter(Boolean).join("\n").replaceAll(END, "") + END;
  const text = parts.join("");
  if (node instanceof HTMLLIElement) {
    const sign = node.className === "task" ? "" : node.parentNode?.nodeName === "OL" ? `${node.value}. ` : "- ";
    return sign + joined(text, "\n").trim().replaceAll("\n", `\n${" ".repeat(sign.length)}`);
  }
  if (isMarked && (name === "A" || MARKS[name])) return name === "A" ? `[${text}](${/** @type {any} */ (node).href})` : MARKS[name] + text + MARKS[name];
  return BLOCK.test(name) ? END + (name === "PRE" ? CODE + text.replace(/\n$/, "") : text) + END : text;
}

/** @param {Element} row @param {boolean} [isMarked] */
const cells = (row, isMarked) =>
  [...row.children].map((cell) => [...cell.childNodes].map((each) => read(each, isMarked)).join("").replace(SPACE, " ").trim());

/** Write a table as a file of a spreadsheet, or as Markdown. @param {HTMLTableElement} table @param {boolean} isMarkdown */
function written(table, isMarkdown) {
  const rows = [...tidied(/** @type {Element} */ (table.cloneNode(true))).querySelectorAll("tr")];
  const texts = rows.map((row) => cells(row, isMarkdown));
  if (!isMarkdown) return texts.map((row) => row.map((text) => (/[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join()).join("\n");
  const sides = [...(rows[0]?.children ?? [])].map((cell) => ({ right: "---:", center: ":---:" })[cell.className] ?? "---");
  const lines = texts.map((row) => row.map((text) => text.replaceAll("|", "\\|")));
  return lines.toSpliced(1, 0, sides).map((row) => `| ${row.join(" | ")} |`).join("\n");
}

/** Return nodes as text and as HTML without looks. @param {Element} place @returns {[text: string, rich: string]} */
function forms(place) {
  const text = joined(read(tidied(place)), "\n\n");
  for (const each of place.querySelectorAll("*"))
    for (const { name } of [...each.attributes]) if (!KEPT.includes(name)) each.removeAttribute(name);
  return [text, new XMLSerializer().serializeToString(place)];
}

/** Return Markdown that was drawn as HTML. @param {import("./markdown.js").Block[]} blocks */
export function richOf(blocks) {
  const place = document.createElement("div");
  place.append(...blocks.map((block) => block.make()));
  return forms(place)[1];
}

/** Copy what is within a range, with whole formulas, in the elements around it. @param {Range} range */
function cloned(range) {
  const whole = range.cloneRange();
  const [first, last] = [range.startContainer, range.endContainer].map((node) =>
    (node instanceof Element ? node : node.parentElement)?.closest(".math"),
  );
  if (first) whole.setStartBefore(first);
  if (last) whole.setEndAfter(last);
  let found = /** @type {Node} */ (whole.cloneContents());
  let at = /** @type {Node | null} */ (whole.commonAncestorContainer);
  for (; at && !(at instanceof Element && at.matches(".turns, body")); at = at.parentNode) {
    if (!(at instanceof Element)) continue;
    if (at instanceof HTMLLIElement && at.parentNode) {
      at = at.parentNode; // of one item its number was not selected
      continue;
    }
    const around = /** @type {Element} */ (at.cloneNode());
    around.append(found);
    found = around;
  }
  const place = document.createElement("div");
  place.append(found);
  return place;
}

document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const isField = event.target instanceof Element && event.target.closest("input, textarea");
  if (!selection || selection.isCollapsed || isField || !event.clipboardData) return;
  const range = selection.getRangeAt(0);
  if (![...document.querySelectorAll(".turns")].some((turns) => range.intersectsNode(turns))) return;
  const place = cloned(range);
  const [text, rich] = forms(place.querySelector(".turns") ?? place);
  event.clipboardData.setData("text/plain", text);
  event.clipboardData.setData("text/html", rich);
  event.preventDefault();
});

/** Copy a block of code or a table: their buttons come with Markdown, so they have no handlers of their own. */
addEventListener("click", async ({ target }) => {
  const button = target instanceof Element && target.closest("button.copy");
  if (!button || button.textContent === "Copied") return;
  const words = button.textContent;
  const table = button.closest(".table-place")?.querySelector("table");
  await copyText(table ? written(table, words === "Markdown") : (button.closest(".code, .command")?.querySelector("code")?.textContent ?? ""));
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = words), SHOWN_MS);
});
