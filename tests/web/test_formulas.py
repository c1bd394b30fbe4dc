"""Formulas in pixels: each construct as its stored picture, and strokes where they must be.

After a change that is meant, `python -m pytest tests/web/test_formulas.py --snapshot-update` stores
new pictures in formulas/; look at them.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial
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
}"""


@pytest.fixture(scope="module")
def sheet(browser: Browser, scripted: RunningServer) -> Iterator[Page]:
    """All formulas below each other, black on white."""
    page = browser.new_page(viewport={"width": 900, "height": 700}, device_scale_factor=1)
    page.goto(scripted.url)
    page.evaluate(DRAW, FORMULAS)
    yield page
    page.close()


def picture(sheet: Page, name: str) -> np.ndarray:
    """Return the ink of a formula, from 0 to 1, without the margins."""
    shot = sheet.locator(f"#{name} .katex-html .katex-base").first.locator("..").screenshot()
    return trimmed(Image.open(io.BytesIO(shot)))


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


@pytest.mark.parametrize("name", FORMULAS)
def test_a_construct_is_drawn_as_its_picture(
    sheet: Page, name: str, request: pytest.FixtureRequest
) -> None:
    expect(sheet.locator(f"#{name} .math")).to_have_count(1)
    expect(sheet.locator(f"#{name} .katex-error")).to_have_count(0)
    ink, path = picture(sheet, name), PICTURES / f"{name}.png"
    if request.config.getoption("--snapshot-update"):
        PICTURES.mkdir(exist_ok=True)
        Image.fromarray(((1 - ink) * 255).astype(np.uint8)).save(path, optimize=True)
    stored = trimmed(Image.open(path))
    off = np.abs(np.subtract(ink.shape, stored.shape))
    assert off.max() <= MAX_OFF_PX, (ink.shape, stored.shape)
    height, width = np.minimum(ink.shape, stored.shape)
    difference = np.abs(ink[:height, :width] - stored[:height, :width]).sum()
    assert difference <= MAX_DIFFERENCE * stored.sum() or off.max() > 0


def test_every_picture_has_its_formula() -> None:
    assert {path.stem for path in PICTURES.iterdir()} == set(FORMULAS)
    assert len(FORMULAS) >= 120


def check_strokes(draw: Callable[[str], np.ndarray]) -> None:
    """Look for a root, fractions, brackets and lines of what draws a formula by its name."""
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


def test_roots_fractions_and_brackets_are_there_in_pixels(sheet: Page) -> None:
    check_strokes(partial(picture, sheet))


@pytest.mark.parametrize("name", ["frac", "pmatrix", "mathbb", "boxed"])
def test_a_formula_is_mathml_for_screen_readers(sheet: Page, name: str) -> None:
    place = sheet.locator(f"#{name}")
    expect(place.locator("math")).to_have_count(1)
    expect(place.locator(".katex-html")).to_have_attribute("aria-hidden", "true")


def test_a_wide_formula_scrolls_in_its_own_box(sheet: Page) -> None:
    wide = {"wide": "+".join(f"x_{{{n}}}" for n in range(200))}
    sheet.evaluate(DRAW, wide)
    sizes = "document.querySelector('#wide .math')"
    assert sheet.evaluate(f"{sizes}.scrollWidth > {sizes}.clientWidth + 1000")
    assert sheet.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sheet.evaluate(DRAW, FORMULAS)
