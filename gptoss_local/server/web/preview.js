/**
 * Previews of HTML and SVG. What runs there has an origin of its own, and its document's policy lets nothing
 * out: no request, no form, no window. The page's policy lets the frame go nowhere else.
 */

const LONGEST = 500_000; // characters
const DOCTYPE = "<!doctype html>\n"; // not in quirks mode

/** Return the button of a block of code, or nothing. @param {string} language @param {string} text */
export function previewButton(language, text) {
  const isDrawn = /^(?:x?html|svg)$/i.test(language) || (/^xml$/i.test(language) && /<svg[\s>]/i.test(text));
  return isDrawn && text.length <= LONGEST ? '<button type="button" class="preview">Preview</button>' : "";
}

/** Let the buttons of sanitised nodes show and hide their previews. @param {DocumentFragment} nodes */
export function addPreviews(nodes) {
  for (const button of nodes.querySelectorAll("button.preview")) button.addEventListener("click", () => toggle(button));
}

/** @param {Element} button */
function toggle(button) {
  const code = /** @type {HTMLElement} */ (button.closest(".code")?.querySelector("pre"));
  const shown = code.nextElementSibling;
  code.hidden = !shown;
  button.textContent = shown ? "Preview" : "Code";
  if (shown) return shown.remove();
  const frame = Object.assign(document.createElement("iframe"), { title: "Preview", src: "/web/preview.html" });
  frame.setAttribute("sandbox", "allow-scripts");
  const write = () => frame.contentWindow?.postMessage(DOCTYPE + code.textContent, "*");
  frame.addEventListener("load", write, { once: true });
  code.after(frame);
}
