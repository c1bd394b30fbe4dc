"""Themes, a phone's width, keys, screen readers, and how soon something is seen."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.conftest import RunningServer, wait_until
from tests.web.chatting import ask, box, choose, last_answer, press, prose, until
from tests.web.conftest import OpenPage
from tests.web.cost import traced

PHONE = {"width": 360, "height": 740}
MAX_PAINT_MS = 600  # about 90 are taken


def check_axe(page: Page) -> None:
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in bad] == []


@pytest.mark.parametrize(("scheme", "width"), [("dark", 360), ("light", 1200)])
def test_axe_finds_nothing_serious(
    open_page: OpenPage, scripted: RunningServer, scheme: str, width: int
) -> None:
    page = open_page(
        scripted,
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
        reduced_motion="reduce",
        bypass_csp=True,  # for axe itself
    )
    check_axe(page)
    ask(page, "Explain it fast")
    page.locator(".reasoning summary").click()
    check_axe(page)
    press(page, "Answer again")
    expect(page.locator(".versions")).to_contain_text("2/2")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    press(page, "Edit the message")
    check_axe(page)
    page.keyboard.press("Escape")
    for name in ("System prompt and sampling", "Change the model"):
        page.get_by_title(name).last.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        check_axe(page)
        page.keyboard.press("Escape")
    page.locator("body").press("?")
    check_axe(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions for this chat").click()
    check_axe(page)
    page.keyboard.press("Escape")
    if width < 800:
        press(page, "Chats")
        page.wait_for_timeout(50)
        check_axe(page)


def test_nothing_is_wider_than_a_phone(open_page: OpenPage, scripted: RunningServer) -> None:
    page = open_page(scripted, viewport=PHONE, has_touch=True, is_mobile=True)

    def overflow() -> list[str]:
        found: list[str] = page.evaluate(
            """() => [...document.querySelectorAll("main, main *, dialog, dialog *")]
        .filter((each) => !each.closest(".table, pre, .math, .spoken, .hidden-file"))
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
        .map((each) => each.outerHTML.slice(0, 90))"""
        )
        page.evaluate("scrollTo(50, 0)")
        scrolled = page.evaluate(
            "[scrollX, document.querySelector('.transcript')?.scrollLeft ?? 0]"
        )
        return found + [f"scrolls {scrolled}"] * (scrolled != [0, 0])

    assert overflow() == []
    box(page).fill("Explain it fast")
    page.get_by_role("button", name="Send", exact=True).tap()
    expect(prose(page)).to_contain_text("the proof")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    assert overflow() == []
    ask_long = "a-very-long-word" * 40
    box(page).fill(ask_long)
    page.get_by_role("button", name="Send", exact=True).tap()
    expect(page.locator(".turn.user")).to_have_count(2)
    assert overflow() == []
    for title in ("System prompt and sampling", "Change the model"):
        page.get_by_title(title).last.tap()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert overflow() == []
        page.get_by_role("button", name="Close", exact=True).tap()
    page.get_by_role("button", name="Chats").tap()
    page.get_by_role("button", name="New chat", exact=True).tap()
    expect(page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    expect(page.locator(".sidebar")).not_to_be_in_viewport()


def test_the_theme_is_the_systems_until_one_is_chosen(
    open_page: OpenPage, scripted: RunningServer
) -> None:
    page = open_page(scripted, color_scheme="dark")

    def is_dark() -> bool:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color[4:-1].split(","))) < 3 * 128

    wait_until(is_dark)
    page.get_by_role("button", name="Theme: system. Change to light").click()
    wait_until(lambda: not is_dark())
    page.reload(wait_until="domcontentloaded")
    assert not is_dark()  # from the beginning
    page.get_by_role("button", name="Theme: light. Change to dark").click()
    page.emulate_media(color_scheme="light")
    wait_until(is_dark)
    page.get_by_role("button", name="Theme: dark. Change to system").click()
    wait_until(lambda: not is_dark())


def test_keys(page: Page) -> None:
    expect(box(page)).to_be_focused()
    box(page).press_sequentially("one")
    box(page).press("Shift+Enter")
    box(page).press_sequentially("two?")
    expect(box(page)).to_have_value("one\ntwo?")  # a question mark is typed
    expect(page.get_by_role("dialog")).to_have_count(0)
    box(page).press("Enter")
    expect(page.locator(".turn.user p")).to_have_text("one\ntwo?")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    expect(box(page)).to_be_focused()
    box(page).press("ArrowUp")
    expect(page.get_by_role("textbox", name="Edit your message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".editor")).to_have_count(0)
    page.locator(".transcript").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_contain_text("Shift+Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(box(page)).to_be_focused()
    expect(box(page)).to_have_value("")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Alt+n")
    expect(page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    expect(box(page)).to_be_focused()


def test_a_menu_by_keys_gives_the_focus_back(page: Page) -> None:
    ask(page, "What is the capital of France?")
    button = page.locator(".chat-head").get_by_role("button", name="Actions for this chat")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Move to a folder")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(button).to_be_focused()
    choose(page, "Actions for this chat", "Rename")
    expect(page.get_by_role("textbox", name="Title")).to_be_focused()


def test_a_screen_reader_hears_the_beginning_and_the_end_not_each_token(page: Page) -> None:
    heard = page.evaluate_handle(
        """() => { const heard = []; const region = document.querySelector("[role=status]");
        new MutationObserver(() => heard.push(region.textContent))
          .observe(region, { childList: true, characterData: true, subtree: true });
        return heard; }"""
    )
    ask(page, "Explain Newton's method")
    expect(page.locator("[role=status]")).to_have_text("The answer has finished.")
    assert heard.json_value() == ["The model is answering.", "The answer has finished."]
    live = "[aria-live=polite], [aria-live=assertive], [role=log], [role=alert], [role=status]"
    assert last_answer(page).evaluate("(turn, live) => !turn.closest(live)", live)


@pytest.mark.timing
def test_the_first_paint_waits_for_little(browser: Browser, scripted: RunningServer) -> None:
    """It needs no answer of the API, nor the files that draw Markdown and the dialogs."""
    context = browser.new_context()
    context.add_init_script("localStorage.setItem('gptoss-token', 'unknown')")
    page = context.new_page()
    page.route(re.compile(r"/api/|(dialogs|markdown|katex)\.js"), lambda route: None)  # never come
    with traced(page) as tasks:
        page.goto(scripted.url, wait_until="commit")
        expect(box(page)).to_be_visible()
        until(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
    assert sum(tasks) < MAX_PAINT_MS
    needed = page.evaluate("[...document.querySelectorAll('link, script')].map((e) => e.outerHTML)")
    assert not [each for each in needed if "markdown" in each or "katex.js" in each]
    page.unroute_all(behavior="ignoreErrors")
    context.close()


SHIFTS = """() => new Promise((found) => { let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => (sum += each.value)))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => found(sum), 500); })"""


def test_the_font_arrives_without_moving_anything(page: Page) -> None:
    page.reload()
    expect(box(page)).to_be_visible()
    assert page.evaluate(SHIFTS) < 0.02
    page.reload()  # it may come too late the first time, and is used from then on
    until(page, "document.fonts.check('16px Inter') && document.fonts.size > 0")
    assert page.evaluate("[...document.fonts].some((font) => font.family === 'Inter')")


def test_distances_and_widths(page: Page) -> None:
    ask(page, "What is the capital of France?")
    ask(page, "What is the capital of Italy?")
    tops = """(selector) => [...document.querySelectorAll(selector)]
      .map((each) => each.getBoundingClientRect()).map(({ top, bottom }) => [top, bottom])"""
    question = page.evaluate(tops, ".bubble")[1]
    before, its_own = page.evaluate(tops, ".turn.assistant .prose")
    assert its_own[0] - question[1] < question[0] - before[1]
    sides = """(selector) => { const { left, right } =
      document.querySelector(selector).getBoundingClientRect(); return [left, right]; }"""
    assert page.evaluate(sides, ".composer") == page.evaluate(sides, ".turn.assistant")
