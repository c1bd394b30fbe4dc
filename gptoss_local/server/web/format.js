/** Words for numbers and dates, as the terminal chat has them. Pure. */

/** Write a number with commas. @param {number} n */
export const count = (n) => Math.round(n).toLocaleString("en");

/** Write a number of things. @param {number} n @param {string} word */
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/** Count the lines of a text; an end of line begins no other. @param {string} text */
export const nLines = (text) => text.replace(/\n$/, "").split("\n").length;

/** Write bytes in decimal units. @param {number} n */
export function size(n) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) [n, k] = [n / 1000, k + 1];
  return `${k ? n.toFixed(1) : n} ${units[k]}`;
}

/** Write bytes of memory in binary units, as cards are sold. @param {number} n */
export const gib = (n) => (n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : `${Math.round(n / 2 ** 20)} MiB`);

/** Count the characters of a text as the server does. @param {string} text */
export function codePoints(text) {
  let n = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xd800 && unit < 0xdc00 && i + 1 < text.length) [n, i] = [n - 1, i + 1];
  }
  return n;
}

/** Write control characters, and those of direction, as `\u001b`. @param {string} text */
export const plain = (text) =>
  // eslint-disable-next-line no-control-regex
  text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, (sign) => {
    return `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });

/** Name the part of the list that a chat belongs to. @param {number} seconds since 1970 */
export function age(seconds) {
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  const days = Math.ceil((midnight - seconds) / 86400);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  return days <= 7 ? "Last 7 days" : days <= 30 ? "Last 30 days" : "Older";
}

/** Say where a model would go. @param {Fit | undefined} fit */
export function place(fit) {
  if (!fit) return "";
  const words = {
    vram: "✓ fits in VRAM",
    split: `◐ ${Math.round(100 * fit.vram_share)} % in VRAM`,
    ram: "○ RAM, no GPU",
    no: `✗ ${fit.problem || "does not fit"}`,
  };
  const problem = fit.fits !== "no" && fit.problem;
  return words[fit.fits] + (problem ? ` · ✗ ${problem}` : fit.n_ctx ? ` · ctx ${count(fit.n_ctx)}` : "");
}

/** Write a duration. @param {number} seconds */
export function duration(seconds) {
  const minutes = Math.round(seconds / 60);
  if (minutes < 1) return `${Math.max(1, Math.round(seconds))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Write how long something took. @param {number} seconds */
export const elapsed = (seconds) =>
  seconds < 60 ? `${seconds < 10 && seconds % 1 ? Math.max(0.1, seconds).toFixed(1) : Math.round(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;

/** Say what an answer that has no text yet waits for. @param {Progress | undefined} progress */
export function waiting(progress) {
  if (!progress) return "waiting";
  const { status, n_done = 0, n_all = 0 } = progress;
  const share = n_all ? ` ${count(n_done)}/${count(n_all)} (${Math.floor((100 * n_done) / n_all)} %)` : "";
  if (status === "loading") return n_all ? `loading ${size(n_done)} of ${size(n_all)}` : "loading the model";
  if (status === "growing") return "loading the model with more context";
  return status === "reading" ? `reading the prompt${share}` : "waiting";
}

/** Write the energy of a finished answer's tokens, if it is known. @param {Stats} stats */
export function energy({ joules = {}, eval_count = 0 }) {
  const each = eval_count ? Object.values(joules).reduce((sum, j) => sum + j, 0) / eval_count : 0;
  return each && `${each >= 10 ? count(each) : each.toPrecision(2)} J/token`;
}

/** Return tokens a second of a finished answer. @param {Stats} stats */
export const speed = (stats) =>
  stats.eval_count && stats.eval_duration ? (stats.eval_count / stats.eval_duration) * 1e9 : 0;
