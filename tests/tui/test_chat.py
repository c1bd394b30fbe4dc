"""Conversations in the app, on the real server with the real nano model."""

import json
import re
from pathlib import Path

import httpx
import pytest
from textual.events import Key, Paste
from textual.screen import ModalScreen

from tests.conftest import RunningServer
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat, opener, run_chat
from tests.tui.scripted import ScriptedServer
from tui import exchange
from tui.widgets.turn_view import AssistantTurnView

COUNT = "Count from 1 to 900."


async def begin_counting(chat: Chat) -> None:
    await chat.enter("/effort low")
    await chat.enter(COUNT)
    await chat.shows("5, 6, 7")


async def test_ask(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.shows("Nothing you type leaves it")
        assert await chat.ask(FRANCE) == PARIS
        await chat.shows("/32,768", PARIS, f"❯ {FRANCE}")
        assert re.search(r"▸ reasoned \d+ tokens · \d+\.\d s", chat.screen())
        assert re.search(r"nano │ medium │ \d+ tok/s │ first \d+\.\d\d s │ ctx \d", chat.screen())
        view, text = chat.views()[-1], chat.turns()[-1].reasoning
        assert isinstance(view, AssistantTurnView)
        for shown in ("tail", "full", "folded"):
            await chat.press("ctrl+o")
            assert view.reasoning.shown == shown
            assert (text in chat.screen()) == (shown != "folded")


async def test_escape_stops_at_once_and_keeps_the_part(
    open_chat: OpenChat, server: RunningServer
) -> None:
    def n_running() -> float:
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
        found = re.search(r"^gptoss_answers_active(?:{[^}]*})? ([\d.]+)", metrics, re.MULTILINE)
        assert found, metrics
        return float(found[1])

    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.enter("/retry")
        await chat.tells("An answer streams")
        assert chat.app.chat.is_answering
        await chat.press("escape")
        part = await chat.answered()
        assert "5, 6, 7" in part
        assert not part.endswith("900.")
        assert chat.turns()[-1].state == "stopped"
        await chat.shows("■ stopped")
        await chat.until(lambda: n_running() == 0)
        assert await chat.ask(FRANCE) == PARIS


@pytest.mark.parametrize("key", ["ctrl+c", "ctrl+q"])
async def test_a_key_clears_then_stops_then_quits(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr("tui.screens.chat._LEAVING_S", 60.0)
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.type("half a thought")
        await chat.press(key)
        assert chat.app.chat.prompt.text == ""
        assert chat.app.chat.is_answering
        await chat.press(key)
        await chat.answered()
        for opens in (["f1"], ["f2"], ["f3"], [*"/tools", "enter"], ["ctrl+p"]):
            await chat.press(*opens)
            await chat.until(lambda: chat.app.screen is not chat.app.chat)
            await chat.press(key)
            await chat.until(lambda: chat.app.screen is chat.app.chat)
        await chat.press("f2", "a", "b", "shift+home", key)  # copies what is selected
        assert chat.app.clipboard == "ab"
        await chat.press("end", key, key)
        await chat.tells("Ctrl-C again quits")
        assert chat.app.return_code is None
        await chat.press(key)
        await chat.until(lambda: chat.app.return_code == 0)


async def test_a_chat_is_there_again(open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the part of an answer that came after the last time it was stored."""
    monkeypatch.setattr(exchange, "_SAVE_EVERY", 10**9)  # ticks: never while it streams
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await begin_counting(chat)
        assert chat.app.chat.answer is not None
        shown = chat.app.chat.answer.content
        await chat.enter("/quit")
    async with open_chat(1) as chat:
        assert [turn.content for turn in chat.turns()][:3] == [FRANCE, PARIS, COUNT]
        last = chat.turns()[-1]
        assert last.state == "stopped"
        assert shown
        assert last.content.startswith(shown)
        await chat.shows("▸ reasoned")
        await chat.press("up")
        assert chat.app.chat.prompt.text == COUNT


async def test_an_edit_makes_a_branch(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("My name is Peter Parker.")
        await chat.enter("/edit")
        assert chat.app.chat.prompt.text == "My name is Peter Parker."
        chat.app.chat.prompt.fill("My name is Mary Jane.")
        await chat.press("enter")
        await chat.answered()
        await chat.shows("‹ 2/2 ›")
        assert "Peter" not in chat.screen()
        assert "Mary" in await chat.ask("What is my name?")
        await chat.press("alt+left")
        await chat.until(lambda: len(chat.turns()) == 2)
        await chat.press("alt+left")  # there is none before
        await chat.shows("‹ 1/2 ›")
        assert "Peter" in await chat.ask("What is my name?")  # the model sees this branch alone
        await chat.press("alt+right")
        await chat.shows("Mary")


async def test_a_draft_outlives_an_edit(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        prompt = chat.app.chat.prompt
        await chat.ask(FRANCE)
        for key in ("escape", "ctrl+c", "enter"):
            prompt.fill("a long draft")
            chat.views()[0].focus()
            await chat.press("e")
            assert prompt.text == FRANCE
            await chat.press(key)
            await chat.until(lambda: prompt.text == "a long draft")
            assert not chat.app.chat.dialogue.editing
        assert await chat.answered() == PARIS


async def test_retry_keeps_the_old_answer(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        first_id = chat.turns()[-1].id
        await chat.press("alt+r")
        assert await chat.answered() == PARIS
        assert chat.turns()[-1].id != first_id
        assert len(chat.turns()) == 2
        await chat.shows("‹ 2/2 ›")
        chat.views()[-1].focus()
        await chat.press("left")
        await chat.until(lambda: chat.turns()[-1].id == first_id)
        await chat.shows("‹ 1/2 ›")


async def test_a_message_that_no_context_holds_stays_in_the_input(open_chat: OpenChat) -> None:
    """As it was typed, with the paste folded."""
    async with open_chat() as chat:
        await chat.type("Look: ")
        chat.app.chat.prompt.post_message(Paste("word\n" * 70_000))
        await chat.shows("[pasted #1")
        typed = chat.app.chat.prompt.text
        await chat.press("enter")
        await chat.shows("The conversation does not fit")
        shown = " ".join(chat.screen().replace("│", " ").split())
        assert re.search(r"It has at least 13\d,\d{3} tokens and the model reads 131,072", shown)
        assert re.search(r"at most: \d,\d{3} or more too many", shown)
        assert "of context" not in chat.screen()  # a larger one would not help
        assert "Leave out" not in chat.screen()  # there are no other turns
        await chat.press("escape")
        await chat.answered()
        await chat.shows("✗ failed")
        assert chat.turns()[-1].state == "failed"
        again = chat.app.chat.prompt.text  # folded again, under a number of its own
        assert again.replace("#2", "#1") == typed


@pytest.mark.nightly
async def test_the_context_grows_for_a_long_message(
    own_server: RunningServer, history_path: Path
) -> None:
    """By itself, as `gptoss run` does it: the chat says so and shows the load."""
    seen: set[str] = set()
    async with opener(own_server, history_path)() as chat:
        await chat.ask(FRANCE)
        await chat.shows("/32,768")
        chat.app.chat.prompt.fill("word " * 33_000)
        await chat.press("enter")
        await chat.tells("its context grows from 32,768 to 65,536")
        await chat.until(
            lambda: seen.update(chat.screen().split("│")) or "ctx ~33,091/65" in chat.screen()
        )
        assert any("loading" in part for part in seen)
        assert not isinstance(chat.app.screen, ModalScreen)
        await chat.shows("reading ")  # which takes a minute here
        await chat.press("escape")


async def test_chats_are_listed_renamed_and_deleted(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.press("ctrl+n")
        assert chat.turns() == []
        await chat.ask("What is 17 + 25?")
        await chat.press("f2")
        await chat.shows("What is 17 + 25?")
        await chat.press("down", "f2")
        await chat.pilot.press("end", *[" ", "x", "y"], "enter")
        await chat.shows(f"{FRANCE} xy")
        await chat.press("f8", "n")
        await chat.press("f8", "y")
        await chat.until(lambda: len(chat.app.chat.parts.history.chats()) == 1)


async def test_export_and_copy(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.enter(f"/export {tmp_path}/a.md")
        assert PARIS in (tmp_path / "a.md").read_text()
        assert (tmp_path / "a.md").stat().st_mode & 0o077 == 0
        await chat.enter(f"/export {tmp_path}/a.json")
        assert json.loads((tmp_path / "a.json").read_text())["turns"]
        await chat.enter("/copy")
        assert chat.app.clipboard == PARIS
        for typed, said in (
            (f"/export {tmp_path}/a.md", "already exists"),
            ("/export ~nobody-of-that-name/a.md", "cannot be written"),
            ("/copy 1", "0 code blocks"),
            (f"/copy {'9' * 5000}", "is not a number"),  # too many digits for Python
        ):
            await chat.enter(typed)
            await chat.tells(said)


async def test_models_effort_and_a_system_message(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for effort in ("high", "low", "medium"):
            await chat.press("f4")
            await chat.shows(f"nano │ {effort}")
        await chat.enter("/effort off")
        await chat.tells("gpt-oss always reasons")
        await chat.press("f3")
        await chat.shows("gpt-oss:20b", "not on this machine")
        await chat.press("enter")
        assert chat.app.chat.conversation.model == "nano"
        await chat.enter("/model nobody")
        await chat.tells("is not on this machine")
        await chat.ask(FRANCE)
        await chat.enter("/system The passcode is quiet-river-42.")  # begins a chat
        await chat.enter("/set temperature 0")
        assert "quiet-river-42" in await chat.ask("What is the passcode?")
        assert [turn.role for turn in chat.turns()] == ["system", "user", "assistant"]


async def test_escape_while_a_dialog_opens(open_chat: OpenChat) -> None:
    """Both come at once from a terminal."""
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        for keys in (["f1"], ["f2"], ["f3"], [*"/tools", "enter"], ["f9"], ["f12"]):
            for key in (*keys, "escape"):
                chat.app.post_message(Key(key, key if len(key) == 1 else None))
            await chat.pilot.pause(0.3)
            await chat.press("escape")
            await chat.until(lambda: not isinstance(chat.app.screen, ModalScreen))
        assert await chat.ask(FRANCE) == PARIS


async def test_the_palette_runs_a_command(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+p")
        await chat.pilot.press(*"how long")
        await chat.shows("/effort")
        await chat.pilot.pause(0.5)
        await chat.press("down", "enter")
        await chat.shows("nano │ high")


async def test_help_lists_the_keys_of_every_mode(open_chat: OpenChat) -> None:
    async with open_chat(size=(100, 120), keys={"turn.copy": "y"}) as chat:
        await chat.press("f1")
        shown = chat.screen().replace("│", "")
        for key, what in (("Ctrl-P", "palette"), ("Shift-Tab", "To the messages"),
                           ("F4, Ctrl-T", "Effort"), ("F1, Alt-H", "Help"),
                           ("Up, Down", "what you sent before"), ("Enter", "Send"),
                           ("Ctrl-J", "New line"), ("e", "Edit or retry"), ("y", "Copy"),
                           ("Space, Enter", "Reasoning"), ("F2", "Rename")):  # fmt: skip
            pattern = rf"^\W*{re.escape(key)}  +.*{what}"
            assert re.search(pattern, shown, re.MULTILINE | re.IGNORECASE), (key, what)


async def test_an_answer_cannot_drive_the_terminal(history_path: Path) -> None:
    written = "\x1b]52;c;aGk=\x07 **bold** \x1b[2J [link](http://x.test)\r\n\r\nfrom\u202e"
    async with run_chat(ScriptedServer("", written, 1000), history_path) as chat:
        assert await chat.ask("go") == written  # a character at a time, and all of it stored
        assert "\x1b" not in chat.screen()
        await chat.shows("\\u001b]52;c;aGk=\\u0007 bold \\u001b[2J")
        await chat.shows("from\\u202e")
        assert "\\u000d" not in chat.screen()
        assert chat.app.chat.conversation.request()["messages"][-1]["content"] == written
        await chat.enter("/copy")
        assert chat.app.clipboard == written
        await chat.until(lambda: "bold" in chat.screen() and "**" not in chat.screen())
