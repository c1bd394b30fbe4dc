"""A conversation in the browser: it streams, stops, fails, and keeps every version."""

import re

from playwright.sync_api import Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.answers import CODE
from tests.web.chatting import ask, box, chat_id, last_answer, press, prose, until
from tests.web.conftest import Watch


def test_an_answer_streams_and_has_its_figures(page: Page) -> None:
    ask(page, "Explain it slowly", waits=False)
    expect(last_answer(page)).to_have_attribute("aria-busy", "true")
    expect(prose(page)).to_contain_text("finds a root")
    assert "the proof" not in prose(page).inner_text()  # the end is not there yet
    expect(page.locator(".live")).to_contain_text("tok/s")
    expect(prose(page)).to_contain_text("the proof")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    expect(last_answer(page).locator(".facts")).to_have_text(
        re.compile(r"nano · (?:low|medium) · \d+ tok/s · \d+ tokens · first after \d\.\d\d s")
    )
    expect(page.locator(".context")).to_have_text(re.compile(r"ctx \d{3}/[\d,]+ \(\d+ %\)"))
    expect(page).to_have_title("Explain it slowly · gptoss")


def test_reasoning_is_open_while_it_streams_then_folded_with_its_figures(page: Page) -> None:
    ask(page, "Think only", waits=False)
    reasoning = page.locator(".reasoning")
    expect(reasoning.locator("summary")).to_have_text(
        re.compile(r"Reasoning ~\d+ tokens · \d\.\d s")
    )
    expect(reasoning.locator(".reasoning-text")).to_contain_text("A thought.")
    expect(prose(page)).to_contain_text("Done.")
    expect(reasoning.locator(".reasoning-text")).to_have_count(0)
    expect(reasoning.locator("summary")).to_have_text(re.compile(r"Reasoned \d+ tokens · \d\.\d s"))
    reasoning.locator("summary").click()
    expect(reasoning.locator(".reasoning-text")).to_contain_text("A thought. A thought.")


def test_stop_by_button_and_by_escape_keeps_what_is_there(page: Page) -> None:
    for k, stop in enumerate((lambda: press(page, "Stop"), lambda: page.keyboard.press("Escape"))):
        ask(page, "Count slowly", waits=False)
        expect(page.locator(".turn.assistant")).to_have_count(k + 1)
        expect(prose(page)).to_contain_text("5,")
        stop()
        expect(last_answer(page).locator(".state")).to_contain_text("Stopped")
        assert "300," not in prose(page).inner_text()
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


def test_a_cut_answer_continues_as_the_same_one(page: Page) -> None:
    ask(page, "Count with a pause", waits=False)
    expect(prose(page)).to_contain_text("10,")
    press(page, "Stop")
    expect(last_answer(page).locator(".state")).to_contain_text("Stopped")
    press(page, "Continue")
    expect(prose(page)).to_contain_text("399,")
    expect(page.locator(".turn.assistant")).to_have_count(1)
    expect(page.locator(".versions")).to_have_count(0)
    assert prose(page).inner_text().split() == [f"{n}," for n in range(1, 400)]


def test_a_reader_who_scrolls_up_stays_there_while_an_answer_streams(page: Page) -> None:
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


def test_a_failure_says_why_and_can_be_tried_again(page: Page) -> None:
    ask(page, "Fail now")
    expect(last_answer(page).locator(".state")).to_contain_text("Failed: the script says that")
    press(page, "Try again")
    expect(page.locator(".versions")).to_contain_text("2/2")


def test_edit_and_retry_make_versions_and_lose_nothing(page: Page) -> None:
    ask(page, "What is the capital of France?")
    page.get_by_role("button", name="Edit the message").click()
    editor = page.get_by_role("textbox", name="Edit your message")
    expect(editor).to_have_value("What is the capital of France?")
    editor.fill("What is the capital of Italy?")
    editor.press("Enter")
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    expect(page.locator(".turn.user .versions")).to_contain_text("2/2")
    press(page, "Version before")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    expect(page.locator(".turn.user .versions")).to_contain_text("1/2")
    press(page, "Answer again")
    expect(page.locator(".turn.assistant .versions")).to_contain_text("2/2")
    expect(page.locator(".turn.user")).to_have_count(1)
    press(page, "Next version")
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")


def test_an_answer_is_wished_while_the_model_thinks(page: Page) -> None:
    ask(page, "Think long", waits=False)
    expect(last_answer(page).locator(".reasoning")).to_contain_text("10,")
    last_answer(page).get_by_role("button", name="Answer now").click()
    expect(prose(page)).to_have_text("Done thinking.")
    expect(last_answer(page).get_by_role("button", name="Answer now")).to_have_count(0)
    expect(last_answer(page).locator(".reasoning")).not_to_contain_text("390,")


def test_the_model_sees_only_the_branch_that_is_shown(page: Page, scripted: RunningServer) -> None:
    ask(page, "What is the capital of France?")
    ask(page, "Something else")
    press(page, "Edit the message")
    page.get_by_role("textbox", name="Edit your message").press("Escape")
    expect(page.locator(".editor")).to_have_count(0)
    expect(page.locator(".composer textarea")).to_be_focused()
    box(page).press("ArrowUp")  # edits the last question
    page.get_by_role("textbox", name="Edit your message").fill("What is the capital of Italy?")
    page.keyboard.press("Enter")
    expect(prose(page)).to_have_text("The capital of Italy is Rome.")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")  # so it is stored
    history = History(scripted.home / "chats.sqlite3")
    chat = history.chat(chat_id(page))
    branch = [turn.content for turn in history.branch(chat.leaf_id)]
    history.close()
    assert branch[0] == "What is the capital of France?"
    assert branch[2:] == ["What is the capital of Italy?", "The capital of Italy is **Rome**."]
    assert chat.n_turns == 6


def test_effort_is_chosen_before_and_in_a_chat(page: Page, scripted: RunningServer) -> None:
    page.get_by_label("Effort").select_option("high")
    ask(page, "What is the capital of France?")
    expect(last_answer(page).locator(".facts")).to_contain_text("nano · high")
    page.get_by_label("Effort").select_option("low")
    ask(page, "What is the capital of Italy?")
    expect(last_answer(page).locator(".facts")).to_contain_text("nano · low")
    history = History(scripted.home / "chats.sqlite3")
    assert history.chat(chat_id(page)).effort == "low"
    history.close()
    page.get_by_label("Effort").select_option("medium")


def test_copies_the_answer_and_a_block_of_code(page: Page) -> None:
    ask(page, "Write a long program")
    page.locator("button.copy").click()
    expect(page.locator("button.copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == CODE.split("```")[1][7:]
    page.get_by_role("button", name="Copy the answer").click()
    expect(page.locator(".spoken")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").strip() == CODE.strip()


def test_the_energy_of_an_answer(page: Page, scripted: RunningServer) -> None:
    history = History(scripted.home / "chats.sqlite3")
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", "Hello")
    stats = {"eval_count": 100, "eval_duration": 5e8, "joules": {"gpu0": 30.0, "cpu0": 12.5}}
    answer = history.add(made, question.id, "assistant", "Hi.", stats=stats)
    history.add(made, answer.id, "user", "Again")
    history.close()
    page.goto(f"{scripted.url}/#/chat/{made}")
    expect(last_answer(page).locator(".facts")).to_have_text(
        "200 tok/s · 100 tokens · 0.42 J/token"
    )


def test_branches_into_a_new_chat(page: Page) -> None:
    ask(page, "What is the capital of France?")
    first = chat_id(page)
    press(page, "Branch into a new chat")
    until(page, f"!location.hash.endsWith('/{first}')")
    expect(prose(page)).to_have_text("The capital of France is Paris.")
    assert chat_id(page) != first


def test_reading_a_long_prompt_is_shown(page: Page) -> None:
    ask(page, "Read slowly", waits=False)
    expect(page.locator(".live")).to_have_text(re.compile(r"reading the prompt \d+/\d+ \(\d+ %\)"))
    expect(prose(page)).to_have_text("I have read it.")


def test_a_message_is_kept_if_it_cannot_be_sent(page: Page, watch: Watch) -> None:
    watch.expected = ("Failed to load resource",)
    page.route("**/api/gptoss/chats", lambda route: route.abort())
    box(page).fill("Keep me")
    box(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    expect(page.get_by_role("alert")).to_contain_text("gptoss serve")
    expect(box(page)).to_have_value("Keep me")
