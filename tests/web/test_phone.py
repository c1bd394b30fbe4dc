"""A phone: sizes for a finger, its home screen, and its own link."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gptoss_local.server.lan import lan_addresses
from tests.conftest import RunningServer, wait_until
from tests.web.chatting import box, prose
from tests.web.conftest import OpenPage, Watch

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
MIN_PX = 44
SMALL = """(min) => [...document.querySelectorAll(
    'button, a[href], select, textarea, summary, input:not([type=file])')]
  .filter((each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((each) => !each.closest('.prose p, .prose li, .skip'))
  .map((each) => ['checkbox', 'radio'].includes(each.type) ? each.closest('label') ?? each : each)
  .map((each) => [each.outerHTML.slice(0, 90), each.getBoundingClientRect()])
  .filter(([, box]) => box.width + 0.01 < min || box.height + 0.01 < min)
  .map(([text, box]) => `${text} ${box.width}x${box.height}`)"""
KEYS = re.compile(r"\b(Enter|Esc|Shift|Ctrl|Alt)\b|the keys|^\?$", re.MULTILINE)


WIDE = """() => [...document.querySelectorAll("main, main *, dialog, dialog *")]
  .filter((each) => !each.closest(".table, pre, .math, .spoken, .hidden-file"))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 90))"""
CUT = """() => [...document.querySelectorAll(".dialog-body, .model .name")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.className)"""
IS_STILL = "!document.getAnimations().some((each) => each instanceof CSSTransition)"
SCROLLED = """() => { scrollTo(50, 0);
  return [scrollX, document.querySelector('.transcript')?.scrollLeft ?? 0]; }"""


def check(page: Page) -> None:
    """Everything is large enough for a finger, nothing is wider than the screen, no key is told."""
    wait_until(lambda: page.evaluate(IS_STILL))
    assert page.evaluate(SMALL, MIN_PX) == []
    assert page.evaluate(WIDE) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(SCROLLED) == [0, 0]
    shown = page.locator("dialog").inner_text() if page.locator("dialog").count() else ""
    shown += page.locator("body").inner_text().replace("What can I help with?", "")
    assert not KEYS.search(shown.replace("Delete this chat?", "")), shown


@pytest.fixture
def phone(open_page: OpenPage, scripted: RunningServer) -> Page:
    return open_page(scripted, **PHONE)


def test_a_finger_hits_everything(phone: Page) -> None:
    check(phone)
    ask_by_touch(phone, "Explain it fast")
    check(phone)
    ask_by_touch(phone, "a-very-long-word" * 40)
    check(phone)
    phone.get_by_role("button", name="Edit the message", exact=True).first.click()
    check(phone)
    phone.get_by_role("button", name="Cancel", exact=True).click()
    phone.get_by_role("button", name="Actions for this chat").click()
    check(phone)
    phone.get_by_role("menuitem", name="Rename", exact=False).click()
    check(phone)
    phone.get_by_role("button", name="Cancel", exact=True).click()
    phone.get_by_title("System prompt and sampling").click()
    expect(phone.get_by_role("dialog")).to_be_visible()
    check(phone)
    phone.get_by_role("button", name="Close").click()
    phone.locator("button.model").tap()
    expect(phone.get_by_role("listbox", name="Model")).to_be_visible()
    check(phone)
    phone.get_by_role("button", name="All models").tap()
    expect(phone.get_by_role("dialog")).to_be_visible()
    check(phone)
    phone.get_by_role("button", name="Close").click()
    phone.get_by_role("button", name="Chats", exact=True).click()
    expect(phone.locator(".sidebar")).to_be_in_viewport()
    check(phone)
    phone.get_by_role("button", name="New chat", exact=True).tap()
    expect(phone.get_by_role("heading", name="What can I help with?")).to_be_visible()
    expect(phone.locator(".sidebar")).not_to_be_in_viewport()


def test_the_narrowest_one_shows_all_of_it(open_page: OpenPage, scripted: RunningServer) -> None:
    phone = open_page(scripted, **PHONE | {"viewport": {"width": 360, "height": 740}})
    ask_by_touch(phone, "Explain it fast")
    phone.get_by_role("button", name="Answer again", exact=True).tap()
    expect(phone.locator(".versions")).to_contain_text("2/2")
    expect(phone.locator(".turn.assistant").last).to_have_attribute("aria-busy", "false")
    phone.get_by_role("button", name="Side by side").tap()
    check(phone)
    phone.get_by_role("button", name="Close").tap()
    box(phone).fill("Count slowly")
    phone.get_by_role("button", name="Send", exact=True).tap()
    expect(phone.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    box(phone).fill("And then?")
    expect(phone.get_by_role("button", name="Send after the answer")).to_be_visible()
    assert phone.evaluate(WIDE) == phone.evaluate(CUT) == []
    phone.get_by_role("button", name="Stop", exact=True).tap()
    phone.get_by_role("button", name="Actions for this chat").tap()
    phone.get_by_role("menuitem", name="Rename").tap()
    phone.get_by_role("textbox", name="Title").fill("Donaudampfschifffahrt" * 5)
    phone.get_by_role("button", name="Rename", exact=True).tap()
    expect(phone.get_by_role("dialog")).to_have_count(0)
    phone.get_by_role("button", name="Actions for this chat").tap()
    phone.get_by_role("menuitem", name="Delete").tap()
    check(phone)


def ask_by_touch(page: Page, question: str) -> None:
    n_before = page.locator(".turn.user").count()
    box(page).fill(question)
    page.get_by_role("button", name="Send", exact=True).tap()
    expect(page.locator(".turn.user")).to_have_count(n_before + 1)
    expect(page.locator(".turn.user:last-child")).to_have_count(0)  # its answer has begun
    expect(page.locator(".turn.assistant").last).to_have_attribute("aria-busy", "false")


def test_a_mouse_has_small_targets_and_is_told_the_keys(page: Page) -> None:
    """Otherwise the test above could not fail."""
    assert page.evaluate(SMALL, MIN_PX) != []
    assert KEYS.search(page.locator("body").inner_text())


def test_a_home_screen_can_have_it(phone: Page, scripted: RunningServer) -> None:
    client = phone.context.new_cdp_session(phone)
    found = client.send("Page.getAppManifest")
    assert found["errors"] == []
    faults = client.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [each["errorId"] for each in faults] == ["in-incognito"]  # as each test's browser is
    links = phone.locator("link[rel=apple-touch-icon]").get_attribute("href")
    icons = [icon["url"] for icon in found["manifest"]["icons"]] + [scripted.url + str(links)]
    for url, size in zip(icons, (192, 512, 512, 180), strict=True):
        sent = httpx.get(url, trust_env=False)
        assert sent.headers["content-type"] == "image/png"
        assert int.from_bytes(sent.content[16:20]) == int.from_bytes(sent.content[20:24]) == size


@pytest.fixture
def stranger(browser: Browser, watch: Watch) -> Iterator[BrowserContext]:
    context = browser.new_context(ignore_https_errors=True, **PHONE)
    yield context
    context.close()


@pytest.mark.skipif(not lan_addresses(), reason="needs an address of a local network")
def test_the_link_lets_a_phone_chat_and_nothing_more(
    stranger: BrowserContext, watch: Watch, scripted: RunningServer
) -> None:
    door = f"{scripted.url}/api/gptoss/lan"
    lan = httpx.post(door, json={}, headers=scripted.owner, trust_env=False).json()
    page = stranger.new_page()
    watch.on(page)
    page.goto(lan["urls"][0] + lan["path"])
    wait_until(lambda: page.evaluate("localStorage.getItem('gptoss-key') !== null"))
    assert page.evaluate("[isSecureContext, localStorage.getItem('gptoss-token')]") == [True, None]
    assert "open=" not in page.evaluate("location.href")
    ask_by_touch(page, "Explain it fast")
    expect(prose(page)).not_to_be_empty()
    page.reload()  # it is remembered
    expect(prose(page)).not_to_be_empty()
    page.locator("button.model").tap()
    page.get_by_role("button", name="All models").tap()
    expect(page.get_by_role("dialog")).to_contain_text("on the server's machine")
    for name in ("Download", "Load", "Unload"):
        expect(page.get_by_role("button", name=re.compile(name))).to_have_count(0)
    page.get_by_role("button", name="Close").click()
    httpx.delete(door, headers=scripted.owner, trust_env=False)
    watch.expected = ("ERR_CONNECTION", "ERR_INCOMPLETE")
    expect(page.locator(".notice.lost")).to_be_visible()
    watch.check(lan["urls"][0])
