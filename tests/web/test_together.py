"""Two tabs, a terminal and a server that comes and goes, all on the same chats."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History, Turn
from tests.conftest import RunningServer, give_nano
from tests.scripted_engine import Script, run_scripted_server
from tests.web.answers import say_all
from tests.web.chatting import ask, box, chat_id, last_answer, press, prose, until
from tests.web.conftest import OpenPage, Watch

Start = Callable[..., AbstractContextManager[RunningServer]]
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { get: () => isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def terminal(scripted: RunningServer) -> Iterator[History]:
    """The chats as another process has them open."""
    history = History(scripted.home / "chats.sqlite3")
    yield history
    history.close()


def turns_of(history: History, made: int) -> list[Turn]:
    return history.branch(history.chat(made).leaf_id)


def test_two_tabs_and_a_terminal_see_what_arrives(
    open_page: OpenPage, scripted: RunningServer, terminal: History
) -> None:
    one = open_page(scripted)
    ask(one, "What is the capital of France?")
    made = chat_id(one)
    two = open_page(scripted, f"/#/chat/{made}", context=one.context)
    expect(prose(two)).to_have_text("The capital of France is Paris.")
    ask(one, "Count slowly", waits=False)
    expect(prose(two)).to_contain_text("10,")  # while it streams
    expect(last_answer(two)).to_have_attribute("aria-busy", "true")
    press(two, "Stop")
    expect(last_answer(one).locator(".state")).to_contain_text("Stopped")
    last = turns_of(terminal, made)[-1]
    question = terminal.add(made, last.id, "user", "Asked in a terminal")
    answer = terminal.add(made, question.id, "assistant", "", state="streaming")
    terminal.update(answer.id, content="It says this", reasoning="A thought")
    for page in (one, two):
        expect(page.locator(".turn.user").last).to_contain_text("Asked in a terminal")
        expect(prose(page)).to_have_text("It says this")
        expect(last_answer(page)).to_have_attribute("aria-busy", "true")
    terminal.update(answer.id, content="It says this, and more.", state="done")
    for page in (one, two):
        expect(prose(page)).to_have_text("It says this, and more.")
        expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    last_answer(one).get_by_role("button", name="Copy the answer").click()
    terminal.update(answer.id, content="It says something else.", state="done")
    expect(prose(one)).to_have_text("It says something else.")
    expect(one.locator(".spoken")).to_have_text("Copied.")  # the answer ends but once
    terminal.rename(made, "Renamed in a terminal")
    expect(two.get_by_role("heading", level=1)).to_have_text("Renamed in a terminal")
    ask(two, "What is the capital of Italy?")
    expect(prose(one)).to_have_text("The capital of Italy is Rome.")
    assert [turn.content for turn in turns_of(terminal, made) if turn.role == "user"] == [
        "What is the capital of France?",
        "Count slowly",
        "Asked in a terminal",
        "What is the capital of Italy?",
    ]
    box(one).press_sequentially("And of Spain?")
    terminal.delete(made)
    for page in (one, two):
        expect(page.get_by_text("This chat was deleted.")).to_be_visible()
    expect(box(one)).to_have_value("And of Spain?")


def test_a_hidden_tab_asks_nothing_and_has_all_when_it_is_seen(
    page: Page, watch: Watch, terminal: History
) -> None:
    ask(page, "What is the capital of France?")
    page.evaluate(HIDE, True)
    until(page, "!document.title.startsWith('…')")  # and nothing is awaited
    watch.requests.clear()
    made = chat_id(page)
    last = turns_of(terminal, made)[-1]
    terminal.add(made, last.id, "user", "While it was hidden")
    page.wait_for_timeout(700)
    expect(page.locator(".turn.user")).to_have_count(1)
    assert watch.requests == []
    page.evaluate(HIDE, False)
    expect(page.locator(".turn.user").last).to_contain_text("While it was hidden")
    assert len(watch.requests) == 1  # an idle tab asks no more


@pytest.fixture
def start(tmp_path: Path, nano_home: Path, vocabulary: Vocabulary) -> Start:
    """Starts a server of its own with the script of all tests."""
    give_nano(nano_home, tmp_path / "home" / "cache")
    say_all(script := Script(vocabulary))
    return partial(run_scripted_server, tmp_path / "home", script)


def test_a_server_that_was_started_again(open_page: OpenPage, start: Start, watch: Watch) -> None:
    """Killed while it answers: the tab is still let in, and has the part that was stored."""
    watch.expected = ("ERR_", "Failed to load resource")
    with start(is_process=True) as server:
        page = open_page(server)
        ask(page, "Count slowly", waits=False)
        expect(prose(page)).to_contain_text("60,")
        box(page).press_sequentially("What next?")
        page.keyboard.press("Enter")
        process = psutil.Process(server.process.pid)
        command, variables = process.cmdline(), process.environ()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        expect(page.locator(".lost")).to_contain_text("The server does not answer. Trying again…")
        expect(page.locator(".live")).to_have_text("The server does not answer")
        expect(page.locator(".pulse, .meter")).to_have_count(0)
        again = subprocess.Popen(command, env=variables)
        try:
            expect(page.locator(".lost")).to_have_count(0)
            expect(last_answer(page).locator(".state")).to_contain_text("Stopped")
            expect(page.locator(".spoken")).to_have_text("The answer has stopped.")
            expect(box(page)).to_have_value("What next?")  # it waited for the answer
            expect(page.locator("button.model")).to_have_accessible_name("Model: nano")
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(prose(page)).to_contain_text("20,")
            ask(page, "What is the capital of France?")
            expect(prose(page)).to_have_text("The capital of France is Paris.")
        finally:
            again.terminate()
            again.wait()


def test_a_server_with_a_key_asks_for_it_once(
    open_page: OpenPage, start: Start, watch: Watch
) -> None:
    watch.expected = ("status of 401",)
    with start(api_key="a secret key") as server:
        page = open_page(server, is_let_in=False)
        dialog = page.get_by_role("dialog", name="Open the page from a terminal")
        field = dialog.get_by_label("Key")
        expect(field).to_be_focused()
        assert not [url for url in watch.requests if "/api/" in url]  # nothing without a key
        field.fill("a wrong key")
        press(page, "Continue")
        expect(dialog.get_by_role("alert")).to_have_text("The server does not know this key.")
        expect(field).to_have_value("")  # asked again
        field.fill("a secret key")
        press(page, "Continue")
        expect(box(page)).to_have_attribute("placeholder", "Message nano")
        page.reload()
        expect(box(page)).to_have_attribute("placeholder", "Message nano")
        ask(page, "What is the capital of France?")
        expect(prose(page)).to_contain_text("Paris")
        page.context.close()
