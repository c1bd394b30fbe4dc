"""Firefox, and WebKit as Safari has it: formulas in pixels, and a chat from its first word on."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import RunningServer, free_port, wait_until
from tests.web.conftest import IS_LET_IN
from tests.web.drivers import ENTER, ESCAPE, FIREFOX, WEBKIT, XVFB, Driver, firefox, webkit
from tests.web.formulas import FORMULAS
from tests.web.test_copying import ANSWER as ANSWER_TO_COPY
from tests.web.test_copying import COPIED
from tests.web.test_formulas import DRAW, PICTURES, check_strokes, trimmed

pytestmark = pytest.mark.nightly

MAX_OFF = 0.06  # of a side; each browser rounds the edges of letters in its own way
MAX_DIFFERENCE = 0.35  # of all ink

NEEDED = {
    "firefox": (FIREFOX, "needs Firefox: apt-get install firefox-esr"),
    "webkit": (WEBKIT and XVFB, "needs WebKit: apt-get install webkit2gtk-driver xvfb"),
}
BROWSERS = [
    pytest.param(name, marks=pytest.mark.skipif(not program, reason=reason))
    for name, (program, reason) in NEEDED.items()
]


@pytest.fixture(scope="module", params=BROWSERS)
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("browser")
    with firefox(folder) if request.param == "firefox" else webkit(free_port()) as made:
        yield made


def until(driver: Driver, expression: str) -> None:
    """Wait until an expression is true."""
    wait_until(lambda: driver.evaluate(f"!!({expression})"))


def look(driver: Driver, selector: str) -> np.ndarray:
    """Return the ink of an element, from 0 to 1."""
    box: dict[str, float] = driver.evaluate(
        f"""(async () => {{ const element = document.querySelector({json.dumps(selector)});
        element.scrollIntoView({{ block: "center" }});
        await new Promise((painted) =>
          requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(painted))));
        const {{ x, y, width, height }} = element.getBoundingClientRect();
        return {{ x, y, width, height }}; }})()"""
    )
    image = Image.open(io.BytesIO(driver.screenshot()))
    sides = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
    return trimmed(image.crop(sides))


def test_formulas_are_drawn_as_chromium_draws_them(driver: Driver, scripted: RunningServer) -> None:
    driver.goto(scripted.url)
    driver.evaluate(f"({DRAW})({json.dumps(FORMULAS)})")
    bad: dict[str, Any] = {}

    def picture(name: str) -> np.ndarray:
        return look(driver, f"#{name} .katex-html")

    for name in FORMULAS:
        stored = trimmed(Image.open(PICTURES / f"{name}.png"))
        for _ in range(3):  # WebKit may show the page before for a moment
            ink = picture(name)
            off = np.abs(np.subtract(ink.shape, stored.shape)) / np.maximum(stored.shape, 50)
            share = abs(float(ink.sum() / stored.sum()) - 1)
            if off.max() <= MAX_OFF and share <= MAX_DIFFERENCE:
                break
        else:
            bad[name] = (ink.shape, stored.shape, round(share, 2))
    assert bad == {}
    check_strokes(picture)


def let_in(driver: Driver, server: RunningServer) -> None:
    driver.goto(server.url + server.link())
    until(driver, f"({IS_LET_IN})()")
    driver.goto("about:blank")
    driver.goto(server.url)
    until(driver, "document.querySelector('.composer textarea')")


def say(driver: Driver, words: str) -> None:
    until(driver, "document.querySelector('button[aria-label=Send]')")
    driver.evaluate("document.querySelector('.composer textarea').focus()")
    driver.press(words + ENTER)


def press(driver: Driver, label: str) -> None:
    button = f"""[...document.querySelectorAll("button")].find((button) =>
      (button.getAttribute("aria-label") ?? button.textContent.trim()) === {json.dumps(label)})"""
    until(driver, f"{button} && !({button}).disabled")
    driver.evaluate(f"{button}.click()")


NUMBERS = {"temperature": "0.7", "top_p": "0.955", "min_p": ".05", "seed": "17"}
TYPED = """Object.fromEntries(
  [...document.querySelectorAll("fieldset input[name]")].map(({ name, value }) => [name, value]))"""
SHOW = """import("/web/markdown.js").then(({ Growing }) => {
  const place = Object.assign(document.createElement("div"), { className: "turns" });
  place.append(...new Growing().update(TEXT, true).map((block) => block.make()));
  document.querySelector("main").append(place); })"""
COPY = """(() => { getSelection().selectAllChildren(document.querySelector(".turns"));
  const [event, forms] = [new Event("copy", { bubbles: true, cancelable: true }), {}];
  event.clipboardData = { setData: (type, words) => { forms[type] = words; } };
  document.dispatchEvent(event);
  return forms["text/plain"]; })()"""


def test_numbers_are_typed_by_keys_and_a_selection_reads_as_it_looks(
    driver: Driver, scripted: RunningServer
) -> None:
    let_in(driver, scripted)
    press(driver, "System prompt and sampling")
    until(driver, "document.querySelector('dialog[open]')")
    for name, text in NUMBERS.items():
        driver.evaluate(f"document.querySelector('[name={name}]').focus()")
        driver.press(text)
    press(driver, "Apply")
    until(driver, "!document.querySelector('dialog[open]')")
    press(driver, "System prompt and sampling")
    until(driver, "document.querySelector('dialog[open]')")
    typed = driver.evaluate(TYPED)
    assert {name: typed[name] for name in NUMBERS} == NUMBERS | {"min_p": "0.05"}
    driver.press(ESCAPE)
    until(driver, "!document.querySelector('dialog[open]')")
    driver.evaluate(SHOW.replace("TEXT", json.dumps(ANSWER_TO_COPY)))
    assert driver.evaluate(COPY) == COPIED


ANSWER = "[...document.querySelectorAll('.turn.assistant')].at(-1)"


def test_a_chat_and_the_dark_theme_of_what_the_browser_draws(
    driver: Driver, scripted: RunningServer
) -> None:
    let_in(driver, scripted)
    say(driver, "Explain Newton's method")
    until(driver, f"{ANSWER}?.getAttribute('aria-busy') === 'false'")
    until(
        driver, f"{ANSWER}.querySelector('.katex-html') && {ANSWER}.querySelector('.hljs-keyword')"
    )
    say(driver, "Count with a pause")
    until(driver, f"{ANSWER}.textContent.includes('11,')")
    press(driver, "Stop")
    until(driver, f"{ANSWER}.textContent.includes('Stopped')")
    press(driver, "Edit the message")
    until(driver, "document.activeElement?.closest('.editor')")
    driver.press(ESCAPE)
    until(driver, "!document.querySelector('.editor')")
    driver.evaluate("document.querySelector('input[type=search]').focus()")
    driver.press("Heron")
    until(driver, "document.querySelector('.hits a mark')?.textContent === 'Heron'")
    press(driver, "System prompt and sampling")
    until(driver, "document.querySelector('dialog[open]')")
    driver.press(ESCAPE)
    until(driver, "!document.querySelector('dialog[open]')")
    press(driver, "Light")
    press(driver, "Dark")
    until(driver, "document.documentElement.dataset.theme === 'dark'")

    def painted() -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(driver.screenshot())).convert("L"))

    wait_until(lambda: (painted() > 230).mean() < 0.05)
    bar = driver.evaluate(
        """(() => { const { right, y, height } =
        document.querySelector(".transcript").getBoundingClientRect();
        return [Math.round(right), Math.round(y), Math.round(y + height)]; })()"""
    )
    edge = painted()[bar[1] + 5 : bar[2] - 5, bar[0] - 6 : bar[0] - 1]
    assert edge.max() < 200, "a white scrollbar"
    press(driver, "System")
