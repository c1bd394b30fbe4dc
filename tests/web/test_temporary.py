"""A temporary chat of the page: marked, not listed, and nowhere on disk, the browser's included."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.conftest import RunningServer
from tests.web.chatting import ask, box, chat_id, press, prose
from tests.web.conftest import CHROMIUM, OpenPage, Watch

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
