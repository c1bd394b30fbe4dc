/** The widths of tables: each fills its column, and scrolls only where its columns would get too narrow. */

/** One that does not scroll keeps its header in sight. */
const widths = new ResizeObserver((seen) => {
  const places = [...new Set(seen.map(({ target }) => target.closest(".table")))].filter((place) => place !== null);
  const wide = places.map((place) => place.scrollWidth > place.clientWidth + 1);
  places.forEach((place, k) => place.classList.toggle("scrolls", wide[k]));
});

/** @param {DocumentFragment} nodes */
export function fitTables(nodes) {
  for (const each of nodes.querySelectorAll(".table, .table > table")) widths.observe(each);
}

/** Keep the columns of a table that grows: of equal width, then as its first row takes them. @param {HTMLElement} block @param {string[]} kept */
export function steady(block, kept) {
  const table = /** @type {HTMLTableElement | null} */ (block.querySelector(":scope > .table-place table"));
  if (!table?.tHead || !table.parentElement || (kept.length && table.matches(".steady"))) return kept;
  const cells = [...table.tHead.querySelectorAll("th")];
  if (!kept.length && table.rows.length > 2) {
    const whole = table.offsetWidth;
    const least = whole > table.parentElement.clientWidth ? `${whole}px` : "";
    kept = [least, ...cells.map((cell) => `${(100 * cell.offsetWidth) / whole}%`)];
  }
  const [least = "", ...shares] = kept;
  table.classList.add("steady");
  table.style.minWidth = least;
  cells.forEach((cell, k) => (cell.style.width = shares[k] ?? ""));
  return kept;
}
