"""Formulas in pixels: each construct as its stored picture, and strokes where they must be.

After a change that is meant, `python -m pytest tests/web/test_formulas.py --snapshot-update` stores
new pictures in formulas/; look at them.
"""

import io
from collections.abc import Callable, Iterator
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.conftest import RunningServer
from tests.web.formulas import FORMULAS

PICTURES = Path(__file__).parent / "formulas"
MAX_OFF_PX = 2
MAX_DIFFERENCE = 0.02  # of all ink that both have
DRAW = """async (formulas) => {
  const markdown = await import("/web/markdown.js");
  for (;;) { // WebKit's import() does not wait for a module that the page is evaluating
    try { markdown.Growing; break; } catch { await new Promise((later) => setTimeout(later, 20)); }
  }
  const { Growing } = markdown;
  document.body.innerHTML = '<div id="sheet" class="prose"></div>';
  document.documentElement.style.colorScheme = "light";
  const sheet = document.getElementById("sheet");
  for (const [name, tex] of Object.entries(formulas)) {
    const place = document.createElement("div");
    place.id = name;
    const blocks = new Growing().update("\\\\[" + tex + "\\\\]", true);
    place.append(...blocks.map((block) => block.make()));
    sheet.append(place);
  }
  sheet.style.cssText = "width: 40rem; padding: 1rem; font-size: 20px; background: white";
  sheet.style.color = "black";
  for (const face of document.fonts)
    if (face.display !== "optional") await face.load(); // too late, WebKit counts it as failed
  await document.fonts.ready;
  for (const place of sheet.children) // each begins at a whole pixel, whatever is above it
    place.style.height = `${Math.ceil(place.getBoundingClientRect().height)}px`;
}"""


BOXES = """() => Object.fromEntries([...document.querySelectorAll("#sheet > div")].map((place) => {
  const { x, y, right, bottom } =
    place.querySelector(".katex-html .katex-base").parentElement.getBoundingClientRect();
  return [place.id, [x + scrollX, y + scrollY, right + scrollX, bottom + scrollY]];
}))"""


@pytest.fixture(scope="module")
def sheet(browser: Browser, scripted: RunningServer) -> Iterator[Page]:
    """All formulas below each other, black on white."""
    page = browser.new_page(viewport={"width": 900, "height": 700}, device_scale_factor=1)
    page.goto(scripted.url)
    page.evaluate(DRAW, FORMULAS)
    yield page
    page.close()


@pytest.fixture(scope="module")
def pictures(sheet: Page) -> dict[str, np.ndarray]:
    """The ink of each formula, from 0 to 1, without the margins."""
    image = Image.open(io.BytesIO(sheet.screenshot(full_page=True)))
    return {
        name: trimmed(image.crop((floor(box[0]), floor(box[1]), ceil(box[2]), ceil(box[3]))))
        for name, box in sheet.evaluate(BOXES).items()
    }


def trimmed(image: Image.Image) -> np.ndarray:
    ink = 1 - np.asarray(image.convert("L"), dtype=np.float32) / 255
    rows, columns = np.flatnonzero(ink.max(1) > 0.1), np.flatnonzero(ink.max(0) > 0.1)
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def bars(ink: np.ndarray) -> list[int]:
    """Return the lengths of horizontal strokes, one for each row that has one of 8 px and more."""
    found = []
    for row in ink > 0.4:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        found.append(int(max(edges[1::2] - edges[::2], default=0)))
    return [length for length in found if length >= 8]


def differs(name: str, ink: np.ndarray) -> bool:
    """Return whether a formula is not drawn as in its stored picture."""
    if not (path := PICTURES / f"{name}.png").exists():
        return True
    stored = trimmed(Image.open(path))
    off = np.abs(np.subtract(ink.shape, stored.shape)).max()
    height, width = np.minimum(ink.shape, stored.shape)
    difference = np.abs(ink[:height, :width] - stored[:height, :width]).sum()
    return bool(off > MAX_OFF_PX or (off == 0 and difference > MAX_DIFFERENCE * stored.sum()))


def test_each_construct_is_drawn_as_its_picture(
    sheet: Page, pictures: dict[str, np.ndarray], request: pytest.FixtureRequest
) -> None:
    expect(sheet.locator(".math")).to_have_count(len(FORMULAS))
    expect(sheet.locator(".katex-error")).to_have_count(0)
    for hears in (".math math", ".katex-html[aria-hidden=true]"):  # MathML for screen readers
        expect(sheet.locator(hears)).to_have_count(len(FORMULAS))
    if request.config.getoption("--snapshot-update"):
        for name in filter(lambda name: differs(name, pictures[name]), FORMULAS):
            image = Image.fromarray(((1 - pictures[name]) * 255).astype(np.uint8))
            image.save(PICTURES / f"{name}.png", optimize=True)
    assert {path.stem for path in PICTURES.iterdir()} == set(FORMULAS)
    assert [name for name, ink in pictures.items() if differs(name, ink)] == []


def test_pictures_need_no_font_of_the_machine(sheet: Page) -> None:
    """Other machines would draw them in others; signs without a font, as 速度, are text."""
    client = sheet.context.new_cdp_session(sheet)
    for domain in ("DOM", "CSS"):
        client.send(f"{domain}.enable")
    root = client.send("DOM.getDocument")["root"]["nodeId"]
    found = client.send("DOM.querySelectorAll", {"nodeId": root, "selector": ".katex-html"})
    fonts = [
        font
        for node in found["nodeIds"]
        for font in client.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    ]
    assert len(found["nodeIds"]) == len(FORMULAS)
    assert {font["familyName"] for font in fonts if not font["isCustomFont"]} == set()
    client.detach()
    sheet.evaluate(DRAW, {"cjk": r"\text{速度} = \frac{\text{距離}}{\text{時間}}"})
    expect(sheet.locator("#cjk .katex-html")).to_have_text("速度=時間距離")
    sheet.evaluate(DRAW, FORMULAS)


def check_strokes(draw: Callable[[str], np.ndarray]) -> None:
    """Look for a root, fractions, brackets and lines by the names of their elements."""
    quadratic = draw("quadratic")
    assert max(bars(quadratic)) > 0.6 * quadratic.shape[1]  # the bar of the fraction
    assert any(0.25 * quadratic.shape[1] < n < 0.55 * quadratic.shape[1] for n in bars(quadratic))
    matrix = draw("bmatrix")
    for column in (matrix[:, :4].max(1), matrix[:, -4:].max(1)):  # from top to bottom
        assert (column > 0.3).mean() > 0.95
    lines = draw("array")
    assert max(bars(lines)) > 0.8 * lines.shape[1]
    boxed = draw("boxed")
    assert [boxed[k].mean() > 0.3 for k in (0, -1)] == [True, True]
    assert [boxed[:, k].mean() > 0.3 for k in (0, -1)] == [True, True]


def test_roots_fractions_and_brackets_are_there_in_pixels(pictures: dict[str, np.ndarray]) -> None:
    check_strokes(pictures.__getitem__)


def test_a_wide_formula_scrolls_in_its_own_box(sheet: Page) -> None:
    wide = {"wide": "+".join(f"x_{{{n}}}" for n in range(200))}
    sheet.evaluate(DRAW, wide)
    sizes = "document.querySelector('#wide .math')"
    assert sheet.evaluate(f"{sizes}.scrollWidth > {sizes}.clientWidth + 1000")
    assert sheet.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sheet.evaluate(DRAW, FORMULAS)
