"""One conversation: it is asked, stopped, edited, told again, copied, and there again."""

import json
import re
from pathlib import Path

import pytest
from textual.events import Key, Paste
from textual.screen import ModalScreen

from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer, installed
from tui import exchange
from tui.widgets.turn_view import AssistantTurnView

DIALOGS = (["f1"], ["f2"], ["f3"], [*"/tools", "enter"], ["f9"], ["f12"], ["ctrl+p"])


def counting() -> ScriptedServer:
    """A server that counts to 99, and ends when the test lets it."""
    return ScriptedServer("0, ", [f"{n}, " for n in range(1, 100)], per_s=200, holds=True)


async def begin_counting(chat: Chat) -> None:
    await chat.enter("Count")
    await chat.shows("5, 6, 7")


async def test_ask(open_chat: OpenChat) -> None:
    """With the real model: the answer, its figures, its reasoning and its tokens."""
    async with open_chat(size=(100, 40)) as chat:
        await chat.shows("Nothing you type leaves it")
        await chat.press("f8")
        await chat.shows("No answer is finished yet")
        assert await chat.ask(FRANCE) == PARIS
        await chat.shows("ctx ", PARIS, f"❯ {FRANCE}", "between tokens: median")
        for pattern in (
            r"▸ reasoned \d+ tokens · \d+\.\d s",
            r"nano │ medium │ \d+ tok/s │ first \d+\.\d\d s │ ctx \d",
            r"answer \d+ tokens in \d\.\d\d s",
            r"prompt \d+ tokens, \d+ read in .* tok/s\)",
        ):
            await chat.until(lambda p=pattern: re.search(p, chat.screen()))
        await chat.press("f8")
        await chat.until(lambda: "between tokens" not in chat.screen())
        view, text = chat.views()[-1], chat.turns()[-1].reasoning
        assert isinstance(view, AssistantTurnView)
        for shown in ("tail", "full", "folded"):
            await chat.press("ctrl+o")
            assert view.reasoning.shown == shown
            assert (text in chat.screen()) == (shown != "folded")
        tokens = chat.turns()[-1].stats["tokens"]
        assert tokens[-1] == 200002  # <|return|>
        assert len(tokens) == chat.turns()[-1].stats["eval_count"]
        await chat.press("f9")
        await chat.shows("assistant · channel final", "Reasoning: medium")
        await chat.press("space")
        await chat.shows("200006 173781 200005 17196 200008")


async def test_messages_wait_are_taken_back_or_cut_in(history_path: Path) -> None:
    server = counting()
    async with run_chat(server, history_path) as chat:
        prompt = chat.app.chat.prompt
        await begin_counting(chat)
        await chat.enter("/retry")
        await chat.tells("An answer streams")
        await chat.enter("first")
        await chat.enter("second")
        await chat.shows("» first", "» second")
        await chat.press("escape")
        assert prompt.text == "second"
        assert chat.app.chat.is_answering
        await chat.press("escape")
        assert prompt.text == "first\n\nsecond"
        await chat.press("escape")  # now it stops, and nothing is sent
        assert (await chat.answered()).startswith("0, 1, 2, 3, 4, 5, 6, 7")
        await chat.shows("■ stopped")
        assert (len(chat.turns()), chat.turns()[-1].state) == (2, "stopped")
        await chat.press("ctrl+c")
        await begin_counting(chat)
        await chat.enter("waits")
        await chat.type("/effort medium")  # a command is no message
        await chat.press("ctrl+s")
        assert chat.app.chat.is_answering
        await chat.type("cuts in")
        await chat.press("ctrl+s")
        await chat.until(lambda: server.asked[-1] == "cuts in")
        assert chat.turns()[-3].state == "stopped"
        server.may_end.set()
        await chat.until(lambda: len(chat.turns()) == 8)
        await chat.answered()
        assert server.asked[2:] == ["cuts in", "waits"]
        assert "»" not in chat.screen()


async def test_a_key_clears_then_stops_then_quits(
    history_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.screens.chat._LEAVING_S", 60.0)
    async with run_chat(counting(), history_path) as chat:
        await begin_counting(chat)
        await chat.type("half a thought")
        await chat.press("ctrl+c")
        assert chat.app.chat.prompt.text == ""
        assert chat.app.chat.is_answering
        await chat.press("ctrl+q")
        await chat.answered()
        for opens in DIALOGS:
            await chat.press(*opens)
            await chat.until(lambda: chat.app.screen is not chat.app.chat)
            await chat.press("ctrl+c")
            await chat.until(lambda: chat.app.screen is chat.app.chat)
        await chat.press("f2", "a", "b", "shift+home", "ctrl+c")  # copies the selection, once
        assert chat.app.clipboard == "ab"
        await chat.tells("Copied 2 characters.")
        await chat.press("ctrl+c", "ctrl+c")
        await chat.tells("Ctrl-C again quits")
        assert chat.app.return_code is None
        await chat.press("ctrl+q")
        await chat.until(lambda: chat.app.return_code == 0)


async def test_a_dialog_that_is_closed_as_it_opens(history_path: Path) -> None:
    """Both keys come at once from a terminal."""
    async with run_chat(ScriptedServer("Well."), history_path) as chat:
        await chat.ask("go")
        for keys in DIALOGS:
            for key in (*keys, "escape"):
                chat.app.post_message(Key(key, key if len(key) == 1 else None))
            await chat.pilot.pause()
            await chat.press("escape")
            await chat.until(lambda: not isinstance(chat.app.screen, ModalScreen))
        assert await chat.ask("again") == "Well."
        await chat.press("ctrl+p")
        await chat.pilot.press(*"how long")
        await chat.shows("/effort")
        await chat.until(lambda: "/new" not in chat.screen())
        await chat.press("down", "enter")
        await chat.shows("nano │ high")


async def test_a_chat_is_there_again(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the part of an answer that came after the last time it was stored."""
    monkeypatch.setattr(exchange, "_SAVE_EVERY", 10**9)  # ticks: never while it streams
    async with run_chat(counting(), history_path) as chat:
        await begin_counting(chat)
        assert chat.app.chat.answer is not None
        shown = chat.app.chat.answer.content
        await chat.enter("/quit")
    async with run_chat(ScriptedServer(), history_path, 1) as chat:
        asked, last = chat.turns()
        assert (asked.content, last.state) == ("Count", "stopped")
        assert last.content.startswith(shown)
        await chat.press("up")
        assert chat.app.chat.prompt.text == "Count"


async def test_edits_and_retries_make_versions(history_path: Path) -> None:
    server = ScriptedServer("Well.")
    async with run_chat(server, history_path) as chat:
        prompt = chat.app.chat.prompt
        await chat.ask("Peter")
        for key in ("escape", "ctrl+c"):
            prompt.fill("a long draft")
            chat.views()[0].focus()
            await chat.press("e")
            assert prompt.text == "Peter"
            await chat.press(key)
            await chat.until(lambda: prompt.text == "a long draft")
            assert not chat.app.chat.dialogue.editing
        chat.views()[0].focus()
        await chat.press("e")
        prompt.fill("Mary")
        await chat.press("enter")
        await chat.answered()
        assert prompt.text == "a long draft"
        await chat.shows("‹ 2/2 ›")
        assert "Peter" not in chat.screen()
        prompt.fill("")
        await chat.ask("Who?")
        await chat.press("alt+left")
        await chat.until(lambda: len(chat.turns()) == 2)
        await chat.press("alt+left")  # there is none before
        await chat.shows("‹ 1/2 ›")
        await chat.ask("Who?")
        asked = [[m["content"] for m in body["messages"]] for body in server.bodies]
        branches = [["Mary", "Well.", "Who?"], ["Peter", "Well.", "Who?"]]
        assert asked == [["Peter"], ["Mary"], *branches]
        await chat.press("alt+right")
        await chat.shows("❯ Mary")
        first_id = chat.turns()[-1].id
        await chat.press("alt+r")
        await chat.until(lambda: len(server.bodies) == 5)
        await chat.answered()
        assert chat.turns()[-1].id != first_id
        chat.views()[-1].focus()
        await chat.press("left")
        await chat.until(lambda: chat.turns()[-1].id == first_id)


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


async def test_lists_exports_and_copies(history_path: Path, tmp_path: Path) -> None:
    async with run_chat(ScriptedServer("Well."), history_path) as chat:
        await chat.ask("First")
        await chat.enter(f"/export {tmp_path}/a.md")
        assert "Well." in (tmp_path / "a.md").read_text()
        assert (tmp_path / "a.md").stat().st_mode & 0o077 == 0
        await chat.enter(f"/export {tmp_path}/a.json")
        assert json.loads((tmp_path / "a.json").read_text())["turns"]
        await chat.enter("/copy")
        assert chat.app.clipboard == "Well."
        for typed, said in (
            (f"/export {tmp_path}/a.md", "already exists"),
            ("/export ~nobody-of-that-name/a.md", "cannot be written"),
            ("/copy 1", "0 code blocks"),
            (f"/copy {'9' * 5000}", "is not a number"),  # too many digits for Python
        ):
            await chat.enter(typed)
            await chat.tells(said)
        await chat.press("ctrl+n")
        assert chat.turns() == []
        await chat.ask("Second")
        await chat.press("f2")
        await chat.shows("Second")
        await chat.press("down", "f2")
        await chat.pilot.press("end", *" xy", "enter")
        await chat.shows("First xy")
        await chat.press("f8", "n", "f8", "y")
        await chat.until(lambda: len(chat.app.chat.parts.history.chats()) == 1)


async def test_models_effort_options_and_a_system_message(history_path: Path) -> None:
    server = ScriptedServer("Well.", tags=[installed("nano")])
    async with run_chat(server, history_path) as chat:
        for effort in ("high", "low", "medium"):
            await chat.press("f4")
            await chat.shows(f"nano │ {effort}")
        for typed, said in (
            ("/effort off", "gpt-oss always reasons"),
            ("/model nobody", "is not on this machine"),
            ("/set heat 3", "there is no option 'heat'"),
            ("/set temperature 9", "temperature is a number from 0 to 2"),
            ("/set seed 1.5", "seed is a whole number"),
        ):
            await chat.enter(typed)
            await chat.tells(said)
        await chat.enter("/system Be brief.")  # begins a chat
        await chat.enter("/set temperature 0.5")
        await chat.enter("/set seed 7")
        await chat.ask("go")
        assert [m["role"] for m in server.bodies[0]["messages"]] == ["system", "user"]
        await chat.press("f5")  # the same prompt with another effort
        await chat.until(lambda: len(server.bodies) == 2)
        await chat.answered()
        assert [body["think"] for body in server.bodies] == ["medium", "high"]
        await chat.enter("/new")
        assert chat.app.chat.conversation.options == {}
    async with run_chat(server, history_path, 1) as chat:
        assert chat.app.chat.conversation.request()["options"] == {"temperature": 0.5, "seed": 7}
        await chat.enter("/set seed")
        assert chat.app.chat.conversation.options == {"temperature": 0.5}


async def test_an_answer_cannot_drive_the_terminal(history_path: Path) -> None:
    written = "\x1b]52;c;aGk=\x07 **bold** \x1b[2J [link](http://x.test)\r\n\r\nfrom\u202e"
    async with run_chat(ScriptedServer("", written, 1000), history_path) as chat:
        assert await chat.ask("go") == written  # a character at a time, and all of it stored
        assert "\x1b" not in chat.screen()
        await chat.shows("\\u001b]52;c;aGk=\\u0007 bold \\u001b[2J", "from\\u202e")
        assert "\\u000d" not in chat.screen()
        assert chat.app.chat.conversation.request()["messages"][-1]["content"] == written
        await chat.enter("/copy")
        assert chat.app.clipboard == written
