"""A conversation in the browser: it streams, stops, fails, and keeps every version."""

import re

from playwright.sync_api import Page, Route, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.web.answers import CODE
from tests.web.chatting import (
    ask,
    box,
    chat_id,
    intercept,
    kept,
    last_answer,
    new_chat,
    press,
    prose,
    until,
)
from tests.web.conftest import Watch


def test_an_answer_streams_and_has_its_figures(page: Page, scripted: RunningServer) -> None:
    ask(page, "Explain it slowly", waits=False)
    expect(last_answer(page)).to_have_attribute("aria-busy", "true")
    expect(prose(page)).to_contain_text("finds a root")
    assert "the proof" not in prose(page).inner_text()  # the end is not there yet
    expect(page.locator(".live")).to_have_text(re.compile(r"^\d\S* s · ~\d+ tok/s$"))
    expect(prose(page)).to_contain_text("the proof")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    took = last_answer(page).locator(".took")
    expect(took).to_have_text(re.compile(r"^\d\S* s · \d+ tok/s · on this machine$"))
    expect(took).to_have_css("opacity", "1")
    expect(last_answer(page).locator(".facts")).to_have_text(
        re.compile(r"nano · (?:low|medium) · \d+ tokens · first after \d\.\d\d s")
    )
    expect(page.locator(".context")).to_have_text(re.compile(r"ctx \d{3}/[\d,]+ \(\d+ %\)"))
    expect(page).to_have_title("Explain it slowly · gptoss")
    ask(page, "Read slowly", waits=False)
    expect(page.locator(".live")).to_have_text(re.compile(r"reading the prompt \d+/\d+ \(\d+ %\)"))
    expect(prose(page)).to_have_text("I have read it.")
    history = History(scripted.home / "chats.sqlite3")
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", "Hello")
    stats = {"eval_count": 100, "eval_duration": 5e8, "total_duration": 83e9,
             "joules": {"gpu0": 30.0, "cpu0": 12.5}}  # fmt: skip
    history.add(made, question.id, "assistant", "Hi.", model="nano", stats=stats)
    history.close()
    page.goto(f"{scripted.url}/#/chat/{made}")
    figures = "1 min 23 s · 200 tok/s · 0.42 J/token · on this machine"
    expect(took).to_have_text(figures)


def test_reasoning_is_open_while_it_streams_then_folded(page: Page) -> None:
    """An answer can be wished meanwhile."""
    ask(page, "Think long", waits=False)
    reasoning = page.locator(".reasoning").last
    summary = reasoning.locator("summary")
    expect(summary).to_have_text(re.compile(r"Reasoning ~\d+ tokens · \d\.\d s"))
    expect(reasoning.locator(".reasoning-text")).to_contain_text("10,")
    last_answer(page).get_by_role("button", name="Answer now").click()
    expect(prose(page)).to_have_text("Done thinking.")
    expect(last_answer(page).get_by_role("button", name="Answer now")).to_have_count(0)
    expect(reasoning.locator(".reasoning-text")).to_have_count(0)
    expect(summary).to_have_text(re.compile(r"Reasoned \d+ tokens · \d\.\d s"))
    summary.click()
    expect(reasoning.locator(".reasoning-text")).to_contain_text("1, 2, 3,")
    expect(reasoning).not_to_contain_text("390,")


def test_an_answer_is_stopped_and_continued(page: Page) -> None:
    ask(page, "Count slowly", waits=False)
    expect(prose(page)).to_contain_text("5,")
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    n_before = len(prose(page).inner_text())
    page.keyboard.press("Escape")  # of the dialog
    expect(page.get_by_role("dialog")).to_have_count(0)
    wait_until(lambda: len(prose(page).inner_text()) > n_before + 20)
    for _ in range(3):
        page.keyboard.press("Escape")
    expect(last_answer(page).locator(".state")).to_contain_text("Stopped")
    ask(page, "Count with a pause", waits=False)
    expect(page.locator(".turn.assistant")).to_have_count(2)
    expect(prose(page)).to_contain_text("10,")
    press(page, "Stop")
    expect(last_answer(page).locator(".state")).to_contain_text("Stopped")
    assert "300," not in prose(page).inner_text()
    last_answer(page).get_by_role("button", name="Continue").click()
    expect(prose(page)).to_contain_text("399,")
    expect(page.locator(".turn.assistant")).to_have_count(2)
    expect(page.locator(".versions")).to_have_count(0)
    assert prose(page).inner_text().split() == [f"{n}," for n in range(1, 400)]


def test_a_reader_who_scrolls_up_stays_there_until_something_is_sent(page: Page) -> None:
    ask(page, "Write a long program")
    ask(page, "Count slowly", waits=False)
    expect(prose(page)).to_contain_text("5,")
    top = "document.querySelector('.transcript').scrollTop"
    page.locator(".turn.user").last.hover()
    page.mouse.wheel(0, -600)
    down = page.get_by_role("button", name="To the end")
    expect(down).to_be_visible()
    where = page.evaluate(top)
    expect(prose(page)).to_contain_text("40,")
    assert page.evaluate(top) == where
    down.click()
    until(page, f"{top} > {where}")
    expect(down).to_have_count(0)
    press(page, "Stop")
    page.locator(".transcript").evaluate("(each) => each.scrollTo({ top: 0 })")
    expect(down).to_be_visible()
    ask(page, "What is the capital of Italy?")
    expect(page.locator(".turn.user").last).to_be_in_viewport()
    expect(last_answer(page)).to_be_in_viewport()


def test_a_failure_says_why_and_loses_no_message(page: Page, watch: Watch) -> None:
    ask(page, "Fail now")
    expect(last_answer(page).locator(".state")).to_contain_text("Failed: the script says that")
    press(page, "Try again")
    expect(page.locator(".versions")).to_contain_text("2/2")
    watch.expected = ("Failed to load resource",)
    press(page, "New chat")
    intercept(page, "**/api/gptoss/chats", lambda route: route.abort())
    box(page).fill("Keep me")
    box(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    expect(page.get_by_role("alert")).to_contain_text("gptoss serve")
    expect(box(page)).to_have_value("Keep me")


def test_a_message_is_seen_before_the_server_has_it(page: Page, watch: Watch) -> None:
    """Also in a new chat, by a tap, and as an edit; it is typed again where the server fails."""
    watch.expected = ("Failed to load resource",)
    held: list[Route] = []
    said = page.locator(".turn.user")
    editor = page.get_by_role("textbox", name="Edit your message")
    intercept(page, "**/api/gptoss/chats", lambda route: held.append(route))
    for typed in ("", "What is new?"):
        box(page).press_sequentially(typed)
        with page.expect_request("**/api/gptoss/chats"):
            box(page).press("Enter") if typed else press(page, "What is 123 + 456?")
        expect(said).to_have_text(typed or "What is 123 + 456?")
        expect(box(page)).to_have_value("")
        held.pop().abort()
        expect(said).to_have_count(0)
        expect(box(page)).to_have_value(typed)
        expect(page.get_by_label("Try it")).to_be_visible()
    page.unroute("**/api/gptoss/chats")
    box(page).press("Enter")
    expect(prose(page)).to_contain_text("only a few answers")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    intercept(page, "**/ask", lambda route: held.append(route))
    box(page).press_sequentially("What is the capital of Italy?")
    with page.expect_request("**/ask"):
        box(page).press("Enter")
    expect(said).to_have_text(["What is new?", "What is the capital of Italy?"])
    expect(said.last).to_be_in_viewport()
    expect(page.get_by_role("button", name="Edit the message").last).to_be_disabled()
    expect(said.last.locator(".bubble")).to_have_css("opacity", "0.6")
    held.pop().continue_()
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    expect(said).to_have_count(2)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    box(page).press("ArrowUp")
    expect(editor).to_be_focused()
    page.keyboard.type(" Or of Spain?")
    for fails in (True, False):
        with page.expect_request("**/ask"):
            page.keyboard.press("Enter")
        expect(said.last).to_have_text("What is the capital of Italy? Or of Spain?")
        expect(page.locator(".turn")).to_have_count(3)
        held.pop().abort() if fails else held.pop().continue_()
        if fails:
            expect(editor).to_have_value("What is the capital of Italy? Or of Spain?")
            expect(editor).to_be_focused()
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    expect(editor).to_have_count(0)


def test_an_edit_stays_while_the_chat_changes(page: Page, scripted: RunningServer) -> None:
    ask(page, "What is the capital of France?")
    press(page, "Edit the message")
    editor = page.get_by_role("textbox", name="Edit your message")
    expect(editor).to_be_focused()
    page.keyboard.type(" Which is it?")
    words = "What is the capital of France? Which is it?"
    new_chat(page)
    expect(editor).to_have_count(0)
    page.go_back()
    expect(editor).to_have_value(words)
    expect(box(page)).to_be_focused()  # the next keys are for a new message
    history = History(scripted.home / "chats.sqlite3")
    question = history.add(chat_id(page), None, "user", "Asked in a terminal")
    history.add(chat_id(page), question.id, "assistant", "It says this.")
    history.close()
    expect(page.locator(".turn.user")).to_contain_text("Asked in a terminal")
    expect(editor).to_have_count(0)
    press(page, "Version before")
    expect(editor).to_have_value(words)
    page.reload()
    expect(editor).to_have_value(words)
    editor.press("Enter")
    expect(page.locator(".turn.user")).to_contain_text("Which is it?")
    expect(page.locator(".turn.user .versions")).to_contain_text("3/3")
    expect(editor).to_have_count(0)


def test_edits_and_retries_make_versions(page: Page, scripted: RunningServer) -> None:
    page.get_by_label("Effort").select_option("high")
    ask(page, "What is the capital of France?")
    expect(last_answer(page).locator(".facts")).to_contain_text("nano · high")
    page.get_by_label("Effort").select_option("low")
    ask(page, "Something else")
    press(page, "Edit the message")
    editor = page.get_by_role("textbox", name="Edit your message")
    expect(editor).to_have_value("What is the capital of France?")
    editor.press("Escape")
    expect(editor).to_have_count(0)
    expect(box(page)).to_be_focused()
    box(page).press("ArrowUp")  # edits the last question
    editor.fill("What is the capital of Italy?")
    editor.press("Enter")
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")  # so it is stored
    chat, turns = kept(page, scripted)
    assert turns[0].content == "What is the capital of France?"
    assert turns[2].content == "What is the capital of Italy?"  # the model saw this branch alone
    assert turns[3].content == "The capital of Italy is **Rome**."
    assert (chat.n_turns, chat.effort) == (6, "low")
    press(page, "Version before")
    expect(prose(page)).to_contain_text("only a few answers")
    last_answer(page).get_by_role("button", name="Answer again").click()
    expect(page.locator(".turn.assistant .versions")).to_contain_text("2/2")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    press(page, "Next version")
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    press(page, "Branch into a new chat")
    until(page, f"!location.hash.endsWith('/{chat.id}')")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    page.get_by_label("Effort").select_option("medium")


def test_copies_the_answer_and_a_block_of_code(page: Page) -> None:
    ask(page, "Write a long program")
    page.locator("button.copy").click()
    expect(page.locator("button.copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == CODE.split("```")[1][7:]
    page.get_by_role("button", name="Copy the answer").click()
    expect(page.locator(".spoken")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").strip() == CODE.strip()
