/** The widths of tables: each fills its column, and scrolls only where its columns would get too narrow. */

/** The width of its place for which the columns of a table were set. @type {WeakMap<Element, number>} */
const setFor = new WeakMap();

/** One that does not scroll keeps its header in sight; in a place of another width its columns are free again. */
const widths = new ResizeObserver((seen) => {
  const places = [...new Set(seen.map(({ target }) => target.closest(".table")))].filter((place) => place !== null);
  for (const { firstElementChild: table, clientWidth } of places)
    if (table instanceof HTMLTableElement && setFor.has(table) && setFor.get(table) !== clientWidth) setColumns(table, false, []);
  const wide = places.map((place) => place.scrollWidth > place.clientWidth + 1);
  places.forEach((place, k) => place.classList.toggle("scrolls", wide[k]));
});

/** @param {DocumentFragment} nodes */
export const fitTables = (nodes) => nodes.querySelectorAll(".table, .table > table").forEach((each) => widths.observe(each));

/** @param {HTMLTableElement} table @param {boolean} isSteady @param {string[]} columns */
function setColumns(table, isSteady, [least = "", ...shares]) {
  table.classList.toggle("steady", isSteady);
  table.style.minWidth = least;
  table.querySelectorAll("th").forEach((cell, k) => (cell.style.width = shares[k] ?? ""));
}

/** Keep the columns of a table that grows: of equal width, then as its first row takes them. @param {HTMLElement} block @param {string[]} kept */
export function steady(block, kept) {
  const table = /** @type {HTMLTableElement | null} */ (block.querySelector(":scope > .table-place table"));
  if (!table?.tHead || !table.parentElement || (kept.length && table.matches(".steady"))) return kept;
  const width = table.parentElement.clientWidth;
  if (table.rows.length > 2 && kept[0] !== `${width}`) {
    const whole = table.offsetWidth;
    const shares = [...table.tHead.querySelectorAll("th")].map((cell) => `${(100 * cell.offsetWidth) / whole}%`);
    kept = [`${width}`, whole > width ? `${whole}px` : "", ...shares];
  }
  setFor.set(table, width);
  setColumns(table, true, kept.slice(1));
  return kept;
}
