"""Themes, a phone's width, keys, screen readers, and how soon something is seen."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.conftest import RunningServer, wait_until
from tests.web.chatting import ask, box, last_answer, press, until
from tests.web.conftest import OpenPage


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
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    press(page, "Answer again")
    expect(page.locator(".versions")).to_contain_text("2/2")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    press(page, "Edit the message")
    check_axe(page)
    page.keyboard.press("Escape")
    page.get_by_title("System prompt and sampling").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    check_axe(page)
    page.keyboard.press("Escape")
    page.locator("button.model").click()
    expect(page.get_by_role("listbox", name="Model")).to_be_focused()
    check_axe(page)
    press(page, "All models")
    expect(page.get_by_role("dialog")).to_be_visible()
    check_axe(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator("body").press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    check_axe(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions for this chat").click()
    check_axe(page)
    page.keyboard.press("Escape")
    ask(page, "Use a long command", waits=False)
    expect(page.get_by_role("group", name="The model asks to run")).to_be_visible()
    check_axe(page)
    page.locator(".tools-on").click()
    tools = page.get_by_role("dialog", name="Tools")
    tools.get_by_text("Add an MCP server").click()
    check_axe(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Escape")
    box(page).press("Escape")
    if width < 800:
        press(page, "Chats")
        expect(page.locator(".sidebar")).to_be_in_viewport()
        check_axe(page)


def test_the_theme_is_the_systems_until_one_is_chosen(
    open_page: OpenPage, scripted: RunningServer
) -> None:
    page = open_page(scripted, color_scheme="dark")

    def is_dark() -> bool:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color[4:-1].split(","))) < 3 * 128

    wait_until(is_dark)
    page.get_by_role("button", name="Light", exact=True).click()
    wait_until(lambda: not is_dark())
    page.reload(wait_until="domcontentloaded")
    assert not is_dark()  # from the beginning
    two = open_page(scripted, context=page.context)
    expect(two.get_by_role("button", name="Light", pressed=True)).to_be_visible()
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(two.get_by_role("button", name="Dark", pressed=True)).to_be_visible()
    page.emulate_media(color_scheme="light")
    wait_until(is_dark)
    page.get_by_role("button", name="System", exact=True).click()
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
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    expect(box(page)).to_be_focused()
    box(page).press("ArrowUp")
    expect(page.get_by_role("textbox", name="Edit your message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".editor")).to_have_count(0)
    actions = page.locator(".chat-head").get_by_role("button", name="Actions for this chat")
    actions.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Move to a folder")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(actions).to_be_focused()
    page.locator(".transcript").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_contain_text("Shift+Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(box(page)).to_be_focused()
    page.keyboard.press("Control+/")  # also while one types, as "?" cannot
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(box(page)).to_have_value("")
    press(page, "Chats")  # folds the list, and a reload keeps it so
    expect(page.get_by_role("searchbox")).to_be_hidden()
    page.reload()
    expect(box(page)).to_be_visible()
    expect(page.get_by_role("searchbox")).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Alt+n")
    expect(page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    expect(box(page)).to_be_focused()
    skip = page.get_by_role("button", name="Skip to the message")
    skip.focus()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(box(page)).to_be_focused()


GO_ON_AT_ONCE = """(button) => {
  dispatchEvent(new KeyboardEvent("keydown", { key: "k", code: "KeyK", ctrlKey: true }));
  button.focus();
  const frame = () => new Promise(requestAnimationFrame);
  return frame().then(frame).then(frame);
}"""


def test_keys_are_for_what_is_seen(page: Page) -> None:
    """Also those that follow at once: what closes and opens again, and a field that comes."""
    ask(page, "What is the capital of France?")
    menu = page.locator(".chat-head").get_by_role("button", name="Actions for this chat")
    menu.focus()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("Not this")
    page.keyboard.press("Escape")  # the menu's button has the focus
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_have_text("What is the capital of France?")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(page.get_by_role("searchbox")).to_be_focused()
    settings = page.get_by_role("button", name="System prompt and sampling")
    settings.evaluate(GO_ON_AT_ONCE)
    expect(settings).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        expect(settings).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_label("temperature").press_sequentially("0.5")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")  # keeps it
    expect(page.get_by_label("temperature")).to_have_value("0.5")
    here = page.url
    page.keyboard.press("Alt+n")  # not behind a dialog
    assert page.url == here
    page.keyboard.press("Escape")
    press(page, "Discard")
    expect(page.get_by_role("dialog")).to_have_count(0)
    box(page).press("ArrowUp")
    page.keyboard.type("!")
    editor = page.get_by_role("textbox", name="Edit your message")
    expect(editor).to_have_value("What is the capital of France?!")
    editor.dispatch_event("keydown", {"key": "Enter", "keyCode": 229})  # Safari's of a word
    page.keyboard.type("!")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # sends it once
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    expect(page.locator(".turn.user p")).to_have_text("What is the capital of France?!!")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    press(page, "Answer again")
    expect(page.locator(".turn.assistant .versions")).to_contain_text("2/2")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    last_answer(page).get_by_role("button", name="Version before").focus()
    for n in (1, 2, 1):  # the button keeps the focus
        page.keyboard.press("Enter")
        expect(page.locator(".turn.assistant .versions")).to_contain_text(f"{n}/2")


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
    for n in (1, 2):
        press(page, "Copy the answer")
        wait_until(lambda n=n: heard.json_value()[2:] == n * ["Copied."])
    live = "[aria-live=polite], [aria-live=assertive], [role=log], [role=alert], [role=status]"
    assert last_answer(page).evaluate("(turn, live) => !turn.closest(live)", live)


def test_the_first_paint_needs_no_answer_and_no_part_that_comes_later(
    browser: Browser, scripted: RunningServer
) -> None:
    page = browser.new_page()
    page.add_init_script("localStorage.setItem('gptoss-token', 'unknown')")
    page.route(re.compile(r"/api/|(dialogs|markdown|katex)\.js"), lambda route: None)  # never come
    page.goto(scripted.url, wait_until="commit")
    expect(box(page)).to_be_visible()
    until(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
    page.unroute_all(behavior="ignoreErrors")
    page.close()
