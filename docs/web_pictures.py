"""Make the pictures of the web page in docs/.

    python -m docs.web_pictures [FOLDER]

The page, the browser and the server are the real ones; the model is a script, as in
`docs.screenshots`.
"""

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from gptoss_local.harmony import load_vocabulary
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.talk.history import History
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.web.answers import RICH, THOUGHT
from tests.web.chatting import ask, box, press

_MODEL = "gpt-oss:20b"
_OTHERS = (
    "Plan a week of vegetarian dinners",
    "Why does my regular expression not match?",
    "Translate the letter to the landlord",
    "Explain borrow checking with an example",
    "A packing list for three days of hiking",
)
_QUESTION = "Explain Newton's method, with a program and a table."
_SHORT = "It is the mean of two guesses: one is too large, the other one too small."


def main(folder: Path) -> None:
    expect.set_options(timeout=60_000)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        home = Path(place)
        ensure_gguf(home / "cache")
        vocabulary = load_vocabulary()
        script = Script(vocabulary)
        script.say(_QUESTION, answer(RICH, THOUGHT, tok_s=120.0))
        script.say("Why does line 5 work?", answer(_SHORT, tok_s=120.0))
        _add_chats(home)
        with run_scripted_server(home, script) as server:
            copy = {"source": "nano", "destination": _MODEL}
            httpx.post(f"{server.url}/api/copy", json=copy, trust_env=False).raise_for_status()
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"),
                chromium_sandbox=os.geteuid() != 0,
            )
            page = browser.new_page(viewport={"width": 1160, "height": 760}, device_scale_factor=2)
            page.goto(server.url + server.link())
            ask(page, _QUESTION)
            _to(page, 0)
            _save(page, folder / "web.webp")
            page.emulate_media(color_scheme="dark")
            press(page, "Models")
            expect(page.get_by_role("dialog")).to_contain_text("gpt-oss:120b")
            _save(page, folder / "web-models.webp")
            page.keyboard.press("Escape")
            page.set_viewport_size({"width": 390, "height": 760})
            ask(page, "Why does line 5 work?")
            _to(page, 560)
            _save(page, folder / "web-phone.webp")
            browser.close()


def _add_chats(home: Path) -> None:
    history = History(home / "chats.sqlite3")
    for question in reversed(_OTHERS):
        chat_id = history.new_chat(_MODEL, "medium")
        asked = history.add(chat_id, None, "user", question)
        history.add(chat_id, asked.id, "assistant", _SHORT, model=_MODEL, effort="medium")
    history.pin(chat_id, True)
    history.close()


def _to(page: Page, top: int) -> None:
    """Scroll, and leave no mark of the pointer or the focus."""
    page.locator(".transcript").evaluate("(place, top) => place.scrollTo(0, top)", top)
    page.mouse.move(1, 1)
    box(page).blur()
    page.wait_for_timeout(300)


def _save(page: Page, path: Path) -> None:
    page.wait_for_timeout(400)
    image = Image.open(io.BytesIO(page.screenshot()))
    image.save(path, "WEBP", quality=82, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
