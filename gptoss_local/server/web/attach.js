/** Files and long pastes; the server reads files, in the form in which the terminal chat writes them. */

import { ApiError, call } from "./api.js";
import { nLines, plural } from "./format.js";

const MAX_BYTES = 2 ** 25;
const MAX_PASTE = 2000; // characters that stay in the input

/** Return a pasted text as a chip; null if it is short. @param {string} pasted @returns {Chip | null} */
export function foldPaste(pasted) {
  const text = pasted.replace(/\r\n?/g, "\n");
  if (text.length <= MAX_PASTE || !text.trim()) return null;
  return { label: `pasted: ${plural(nLines(text), "line")}`, text };
}

/** Say in a chip how many tokens its text takes. @param {Chip} chip @returns {Promise<Chip>} */
export async function withTokens({ label, text }) {
  const { n } = await call("POST", "/api/gptoss/tokens", { text });
  return { label: `${label}, ${plural(n, "token")}`, text };
}

/** Have a file read. @param {File} file @returns {Promise<Chip>} */
export async function readFile(file) {
  const refuse = (/** @type {string} */ why, /** @type {string} */ hint) => new ApiError(`${file.name} ${why}`, { hint });
  if (file.size > MAX_BYTES) throw refuse("is larger than 32 MiB", "Attach a part of it.");
  const bytes = await file.arrayBuffer().catch(() => {
    throw refuse("cannot be read", "Attach the files of a folder, not the folder.");
  });
  return call("POST", `/api/gptoss/files?name=${encodeURIComponent(file.name)}`, bytes);
}
