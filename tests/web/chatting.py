"""A user's steps on the page, and where to look."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, Route, expect

from gptoss_local.talk.history import ChatSummary, History, Turn
from tests.conftest import RunningServer, wait_until


def box(page: Page) -> Locator:
    """The field for messages."""
    return page.locator(".composer textarea")


def ask(page: Page, question: str, *, waits: bool = True) -> None:
    """Send a message, and wait for the end of its answer; until the last one ends, none goes."""
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    n_before = page.locator(".turn.user").count()
    box(page).fill(question)
    box(page).press("Enter")
    expect(page.locator(".turn.user")).to_have_count(n_before + 1)
    expect(page.locator("#turn-0")).to_have_count(0)  # the server has it
    if waits:
        expect(page.locator(".turn.user:last-child")).to_have_count(0)  # its answer has begun
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        expect(page.locator(".turn.assistant").last).to_have_attribute("aria-busy", "false")


def last_answer(page: Page) -> Locator:
    return page.locator(".turn.assistant").last


def prose(page: Page) -> Locator:
    """The text of the last answer."""
    return page.locator(".turn.assistant").last.locator(".prose")


def press(page: Page, name: str) -> None:
    """Press a button of the page by its name."""
    page.get_by_role("button", name=name, exact=True).first.click()


def new_chat(page: Page) -> None:
    """Leave the open chat for an empty one."""
    press(page, "New chat")
    expect(page.get_by_role("heading", name="What can I help with?")).to_be_visible()


def chat_id(page: Page) -> int:
    return int(page.evaluate("location.hash.split('/')[2]"))


def kept(page: Page, server: RunningServer) -> tuple[ChatSummary, list[Turn]]:
    """Return the open chat as it is on disk, and its turns."""
    history = History(server.home / "chats.sqlite3")
    chat = history.chat(chat_id(page))
    turns = history.branch(chat.leaf_id)
    history.close()
    return chat, turns


def choose(page: Page, menu: str, action: str) -> None:
    """Choose an action of a menu."""
    page.get_by_role("button", name=menu, exact=True).first.click()
    page.get_by_role("menuitem", name=action, exact=True).click()


def intercept(page: Page, url: str | re.Pattern[str], handle: Callable[[Route], object]) -> None:
    """Answer an open page's requests by a handler, once Chromium has told the page of it."""
    page.route(url, handle)
    page.route("**/api/version", lambda route: route.fulfill(body="ours"))
    until(page, "fetch('/api/version').then((r) => r.text()).then((text) => text === 'ours')")
    page.unroute("**/api/version")


def until(page: Page, expression: str) -> None:
    """Wait until an expression is true; the page's own rules forbid to look from within."""
    wait_until(lambda: page.evaluate(expression))


def start_download(page: Page, place: Locator) -> None:
    """Press the button; where the machine of the tests is too small, the page asks first."""
    place.get_by_role("button", name=re.compile("gpt-oss:20b$")).click()
    sure = place.get_by_role("button", name="Download", exact=True)
    if sure.is_visible():
        sure.click()
