"""Chats that others do not read: temporary ones are nowhere on disk, others have a passphrase."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from tests.conftest import RunningServer, give_nano
from tests.scripted_engine import Script, run_scripted_server
from tests.web.answers import say_all
from tests.web.chatting import ask, box, chat_id, press, prose
from tests.web.conftest import CHROMIUM, OpenPage, Watch
from tests.web.test_looks import check_axe

WORD = "Xyzzyplugh"


def test_it_is_marked_and_ends_when_it_is_left(
    open_page: OpenPage, scripted: RunningServer, watch: Watch
) -> None:
    watch.expected = ("404",)
    page = open_page(scripted)
    box(page).fill("Typed before")
    switch = page.get_by_role("button", name="Temporary chat")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text("This chat is kept nowhere")).to_be_visible()
    expect(box(page)).to_have_value("")
    ask(page, "What is the capital of France?")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Temporary chat")
    expect(page.locator(".chat-head")).to_contain_text("not kept")
    expect(page.locator(".chats .current")).to_have_count(0)
    made = chat_id(page)
    two = open_page(scripted, f"/#/chat/{made}", context=page.context)
    expect(two.get_by_role("heading", level=1)).to_have_text("Temporary chat")
    box(page).fill("Typed in it")
    press(page, "New chat")
    expect(box(page)).to_have_value("Typed before")
    expect(two.get_by_text("This chat was deleted.")).to_be_visible()
    page.goto(f"{scripted.url}/#/temporary")
    ask(page, "What is the capital of Italy?")
    page.reload()
    expect(page.get_by_text("This chat was deleted.")).to_be_visible()


def files_with(word: str, *folders: Path) -> set[str]:
    signs = (word.encode(), word.encode("utf-16-le"))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.name for path in files if any(sign in path.read_bytes() for sign in signs)}


@pytest.mark.parametrize("is_temporary", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_disk_has_nothing_of_it(
    browser: Browser, scripted: RunningServer, tmp_path: Path, is_temporary: bool
) -> None:
    word = f"{WORD}{is_temporary}"
    context: BrowserContext = browser.browser_type.launch_persistent_context(
        tmp_path, executable_path=CHROMIUM, chromium_sandbox=os.geteuid() != 0
    )
    page: Page = context.pages[0]
    page.goto(scripted.url + scripted.link())
    expect(box(page)).to_be_visible()
    if is_temporary:
        press(page, "Temporary chat")
    ask(page, f"Tell me of {word}")
    box(page).fill(f"Not sent: {word}")
    page.goto("about:blank")
    context.close()
    found = files_with(word, tmp_path, scripted.home)
    if is_temporary:
        assert found == set()
    else:
        assert any(name.startswith("chats.sqlite3") for name in found)
        assert len(found) > 1  # the browser's own


@pytest.fixture
def locked(tmp_path: Path, nano_home: Path, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    """A server with one chat, which has a passphrase."""
    home = tmp_path / "home"
    give_nano(nano_home, home / "cache")
    history = History(home / "chats.sqlite3")
    history.add(history.new_chat("nano", "low", "Kept secret"), None, "user", "A secret")
    history.lock.change(None, "correct horse")
    history.close()
    script = Script(vocabulary)
    say_all(script)
    with run_scripted_server(home, script) as server:
        yield server


def test_locked_chats_are_unlocked(
    locked: RunningServer, open_page: OpenPage, watch: Watch
) -> None:
    watch.expected = ("423",)
    page = open_page(locked, "/#/temporary", bypass_csp=True)  # for axe itself
    field = page.get_by_label("Passphrase")
    expect(field).to_be_focused()
    check_axe(page)
    page.get_by_role("button", name="Not now").click()
    ask(page, "What is the capital of France?")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    press(page, "New chat")
    page.get_by_role("button", name="Close").click()
    expect(page.locator(".sidebar")).to_contain_text("Saved chats are locked.")
    page.locator(".sidebar").get_by_role("button", name="Unlock").click()
    field.press_sequentially("wrong horse")
    page.get_by_role("dialog").get_by_role("button", name="Unlock").click()
    expect(page.get_by_role("alert")).to_have_text("The passphrase is wrong.")
    check_axe(page)
    field.fill("correct horse")
    field.press("Enter")
    expect(field).to_have_count(0)
    page.get_by_role("link", name="Kept secret").click()
    expect(page.get_by_text("A secret", exact=True)).to_be_visible()
    two = open_page(locked, "/")
    expect(two.get_by_role("link", name="Kept secret")).to_be_visible()
