/** Text files and long pastes, in the form in which the terminal chat writes them. */

import { ApiError } from "./api.js";
import { aboutTokens, plural } from "./format.js";

const MAX_BYTES = 2 ** 20;
const MAX_PASTE = 2000; // characters that stay in the input
const IMAGE = /\.(?:png|jpe?g|gif|webp|bmp|tiff?|heic|avif|ico)$/i;
const NO_IMAGES = "gpt-oss reads text only, no images.";

/** @typedef {import("./types").Chip} Chip */

/** @param {string} text */
const linesOf = (text) => plural(text.split("\n").length, "line");

/** @param {string} label */
const oneLine = (label) => label.replaceAll("]", ")").replace(/\s+/g, " ");

/** Return a pasted text as a chip; null if it is short. @param {string} pasted @returns {Chip | null} */
export function foldPaste(pasted) {
  const text = pasted.replace(/\r\n?/g, "\n");
  if (text.length <= MAX_PASTE || !text.trim()) return null;
  return { label: `pasted: ${linesOf(text)}, ${aboutTokens(text)}`, text };
}

/** Read a text file. @param {File} file @returns {Promise<Chip>} */
export async function readFile(file) {
  const refuse = (/** @type {string} */ why, hint = "") => new ApiError(`${file.name} ${why}.`, { hint });
  if (IMAGE.test(file.name) || file.type.startsWith("image/")) throw refuse("is an image", NO_IMAGES);
  if (/\.pdf$/i.test(file.name)) throw refuse("is a PDF", "`gptoss chat` reads those.");
  if (file.size > MAX_BYTES) throw refuse("is larger than 1 MiB", "Attach a part of it.");
  const text = await decode(file).catch(() => {
    throw refuse("is not a text file", NO_IMAGES);
  });
  const longest = Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  const whole = `${file.name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}\n`;
  return { label: oneLine(`file: ${file.name}, ${linesOf(text)}, ${aboutTokens(whole)}`), text: whole };
}

/** @param {File} file */
async function decode(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const bom = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "utf-8";
  const text = new TextDecoder(bom, { fatal: true }).decode(bytes).replaceAll("\r\n", "\n");
  if (text.includes("\0")) throw new TypeError("not text");
  return text;
}
