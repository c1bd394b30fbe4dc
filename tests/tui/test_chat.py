"""Conversations in the app, on the real server with the real nano model."""

import json
import re
from pathlib import Path

import httpx
import pytest
from textual.events import Key, Paste
from textual.screen import ModalScreen

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat
from tui import exchange
from tui.widgets.turn_view import AssistantTurnView

COUNT = "Count from 1 to 900."


async def begin_counting(chat: Chat) -> None:
    await chat.enter("/effort low")
    await chat.enter(COUNT)
    await chat.until(lambda: "5, 6, 7" in chat.screen())


async def test_ask(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        assert "Nothing you type leaves it" in chat.screen()
        assert await chat.ask(FRANCE) == PARIS
        await chat.until(lambda: "/32,768" in chat.screen())
        assert PARIS in chat.screen()
        assert f"❯ {FRANCE}" in chat.screen()
        assert re.search(r"▸ reasoned \d+ tokens · \d+\.\d s", chat.screen())
        assert re.search(r"nano │ medium │ \d+ tok/s │ first \d+\.\d\d s │ ctx \d", chat.screen())


async def test_the_conversation_goes_on(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("My name is Peter Parker.")
        assert await chat.ask("What is my name?") == "Your name is Peter Parker."
        assert chat.turns()[-1].stats["prompt_cached_count"] > 0


async def test_escape_stops_at_once_and_keeps_the_part(
    open_chat: OpenChat, server: RunningServer
) -> None:
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.press("escape")
        part = await chat.answered()
        assert "5, 6, 7" in part
        assert not part.endswith("900.")
        assert chat.turns()[-1].state == "stopped"
        assert "■ stopped" in chat.screen()
        await chat.until(lambda: _n_running(server) == 0, timeout_s=5)
        assert await chat.ask(FRANCE) == PARIS


async def test_escape_stops_a_prefill(open_chat: OpenChat, server: RunningServer) -> None:
    async with open_chat() as chat:
        chat.app.chat.prompt.fill("some words " * 10_000)
        await chat.press("enter")
        await chat.until(lambda: _n_running(server) == 1)
        await chat.until(
            lambda: re.search(r"reading [1-9][\d,]+/\d\d,\d{3} \(\d+ %\)", chat.screen())
        )
        await chat.press("escape")
        assert await chat.answered() == ""
        await chat.until(lambda: _n_running(server) == 0, timeout_s=5)
        assert chat.turns()[-1].state == "stopped"


def _n_running(server: RunningServer) -> float:
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    found = re.search(r"^gptoss_answers_active(?:{[^}]*})? ([\d.]+)", metrics, re.MULTILINE)
    assert found, metrics
    return float(found[1])


async def test_ctrl_c_clears_then_stops_then_quits(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.type("half a thought")
        await chat.press("ctrl+c")
        assert chat.app.chat.prompt.text == ""
        assert chat.app.chat.is_answering
        await chat.press("ctrl+c")
        await chat.answered()
        await chat.press("ctrl+c")
        await chat.until(lambda: "Ctrl-C again quits" in chat.notices())
        assert chat.app.return_code is None
        await chat.press("ctrl+c")
        assert chat.app.return_code == 0


async def test_leaving_keeps_what_was_on_the_screen(
    open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what came after the last time it was stored."""
    monkeypatch.setattr(exchange, "_SAVE_EVERY", 10**9)  # ticks: never while it streams
    async with open_chat() as chat:
        await begin_counting(chat)
        assert chat.app.chat.answer is not None
        shown = chat.app.chat.answer.content
        await chat.enter("/quit")
    async with open_chat(1) as chat:
        last = chat.turns()[-1]
        assert last.state == "stopped"
        assert shown
        assert last.content.startswith(shown)


async def test_edit_makes_a_sibling(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.enter("/edit")
        assert chat.app.chat.prompt.text == FRANCE
        chat.app.chat.prompt.fill("What is the capital of Italy?")
        await chat.press("enter")
        assert "Rome" in await chat.answered()
        await chat.until(lambda: "‹ 2/2 ›" in chat.screen())
        assert PARIS not in chat.screen()
        await chat.press("alt+left")
        await chat.until(lambda: PARIS in chat.screen())
        assert "‹ 1/2 ›" in chat.screen()
        await chat.press("alt+left")  # there is none before
        assert "‹ 1/2 ›" in chat.screen()
        await chat.press("alt+right")
        await chat.until(lambda: "Rome" in chat.screen())


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


async def test_ctrl_c_leaves_a_dialog(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for opens in (["f1"], ["f2"], ["f3"], ["/", "t", "o", "o", "l", "s", "enter"], ["ctrl+p"]):
            await chat.press(*opens)
            await chat.until(lambda: chat.app.screen is not chat.app.chat)
            await chat.press("ctrl+c")
            await chat.until(lambda: chat.app.screen is chat.app.chat)
        await chat.press("f2", "a", "b", "shift+home", "ctrl+c")
        assert chat.app.clipboard == "ab"
        await chat.press("end", "ctrl+c")
        await chat.until(lambda: chat.app.screen is chat.app.chat)


async def test_retry_keeps_the_old_answer(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        first_id = chat.turns()[-1].id
        await chat.press("alt+r")
        assert await chat.answered() == PARIS
        assert chat.turns()[-1].id != first_id
        assert len(chat.turns()) == 2
        await chat.until(lambda: "‹ 2/2 ›" in chat.screen())
        chat.views()[-1].focus()
        await chat.press("left")
        await chat.until(lambda: chat.turns()[-1].id == first_id)
        assert "‹ 1/2 ›" in chat.screen()


async def test_a_branch_is_what_the_model_sees(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("My name is Peter Parker.")
        await chat.enter("/edit")
        chat.app.chat.prompt.fill("My name is Mary Jane.")
        await chat.press("enter")
        await chat.answered()
        assert "Mary" in await chat.ask("What is my name?")
        await chat.press("alt+left")
        await chat.until(lambda: len(chat.turns()) == 2)
        assert "Peter" in await chat.ask("What is my name?")


async def test_a_message_that_no_context_holds_stays_in_the_input(open_chat: OpenChat) -> None:
    """As it was typed, with the paste folded."""
    async with open_chat() as chat:
        await chat.type("Look: ")
        text = "word\n" * 70_000
        chat.app.chat.prompt.post_message(Paste(text))
        await chat.until(lambda: "[pasted #1" in chat.screen())
        typed = chat.app.chat.prompt.text
        await chat.press("enter")
        await chat.until(lambda: "The conversation does not fit" in chat.screen(), timeout_s=60)
        shown = " ".join(chat.screen().replace("│", " ").split())
        assert re.search(r"It has at least 13\d,\d{3} tokens and the model reads 131,072", shown)
        assert re.search(r"at most: \d,\d{3} or more too many", shown)
        assert "of context" not in chat.screen()  # a larger one would not help
        assert "Leave out" not in chat.screen()  # there are no other turns
        await chat.press("escape")
        await chat.answered()
        await chat.until(lambda: "✗ failed" in chat.screen())
        assert chat.turns()[-1].state == "failed"
        again = chat.app.chat.prompt.text  # folded again, under a number of its own
        assert again.replace("#2", "#1") == typed
        chat.app.chat.prompt.fill(FRANCE)
        await chat.press("enter")
        assert await chat.answered() == PARIS
        assert len(chat.turns()) == 2


async def test_the_context_grows_for_a_long_message(
    own_server: RunningServer, open_own_chat: OpenChat
) -> None:
    """By itself, as `gptoss run` does it: the chat says so and shows the load."""
    seen: set[str] = set()
    async with open_own_chat() as chat:
        await chat.ask(FRANCE)
        await chat.until(lambda: "/32,768" in chat.screen())
        chat.app.chat.prompt.fill("word " * 33_000)
        await chat.press("enter")
        await chat.until(lambda: "its context grows from 32,768 to 65,536" in chat.notices())
        await chat.until(
            lambda: seen.update(chat.screen().split("│")) or "ctx ~33,091/65" in chat.screen(), 60
        )
        assert any("loading" in part for part in seen)
        assert not isinstance(chat.app.screen, ModalScreen)
        await chat.until(lambda: "reading " in chat.screen())  # which takes a minute here
        await chat.press("escape")


async def test_effort_cycles(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        for effort in ("high", "low", "medium", "high"):
            await chat.press("f4")
            assert f"nano │ {effort}" in chat.screen()
        await chat.enter("/effort off")
        await chat.until(lambda: "gpt-oss always reasons" in chat.notices())
        await chat.ask(FRANCE)
        assert chat.turns()[-1].effort == "high"


async def test_reasoning_has_three_states(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        view = chat.views()[-1]
        assert isinstance(view, AssistantTurnView)
        text = chat.turns()[-1].reasoning
        for shown in ("tail", "full", "folded"):
            await chat.press("ctrl+o")
            assert view.reasoning.shown == shown
            assert (text in chat.screen()) == (shown != "folded")


async def test_resume_rename_delete(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.press("ctrl+n")
        assert chat.turns() == []
        await chat.ask("What is 17 + 25?")
        await chat.press("f2")
        await chat.until(lambda: "What is 17 + 25?" in chat.screen())
        await chat.press("down", "f2")
        await chat.pilot.press("end", *[" ", "x", "y"], "enter")
        await chat.until(lambda: f"{FRANCE} xy" in chat.screen())
        await chat.press("f8", "n")
        await chat.press("f8", "y")
        await chat.until(lambda: len(chat.app.chat.parts.history.chats()) == 1)


async def test_search_opens_the_place(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.enter("/new")
        await chat.ask("What is 17 + 25?")
        await chat.enter("/search paris")
        await chat.until(lambda: "The capital of France is Paris." in chat.screen())
        await chat.press("enter")
        await chat.until(lambda: f"❯ {FRANCE}" in chat.screen())
        assert chat.turns()[-1].content == PARIS
        assert await chat.ask("What is 17 + 25?") == "17 + 25 = 42"


async def test_an_export_has_no_name_of_a_device(
    open_chat: OpenChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Windows, where a file `con.md` is the console."""
    monkeypatch.chdir(tmp_path)
    async with open_chat() as chat:
        await chat.ask("Con?")
        await chat.enter("/export")
        await chat.until((tmp_path / "con-chat.md").exists)


async def test_export_and_copy(open_chat: OpenChat, tmp_path: Path) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.enter(f"/export {tmp_path}/a.md")
        assert PARIS in (tmp_path / "a.md").read_text()
        assert (tmp_path / "a.md").stat().st_mode & 0o077 == 0
        await chat.enter(f"/export {tmp_path}/a.json")
        assert json.loads((tmp_path / "a.json").read_text())["turns"]
        await chat.enter(f"/export {tmp_path}/a.md")
        await chat.until(lambda: "already exists" in chat.notices())
        await chat.enter("/copy")
        assert chat.app.clipboard == PARIS
        await chat.enter("/copy 1")
        await chat.until(lambda: "0 code blocks" in chat.notices())
        await chat.enter("/export ~nobody-of-that-name/a.md")
        await chat.until(lambda: "cannot be written" in chat.notices())
        await chat.enter(f"/copy {'9' * 5000}")  # more digits than Python makes a number of
        await chat.until(lambda: "is not a number" in chat.notices())


async def test_a_system_message_begins_a_chat(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        await chat.enter("/system The passcode is quiet-river-42.")
        await chat.enter("/set temperature 0")
        assert "quiet-river-42" in await chat.ask("What is the passcode?")
        assert [turn.role for turn in chat.turns()] == ["system", "user", "assistant"]


async def test_models(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("f3")
        await chat.until(lambda: "gpt-oss:20b" in chat.screen())
        assert "not on this machine" in chat.screen()
        await chat.press("enter")
        assert chat.app.chat.conversation.model == "nano"
        await chat.enter("/model nobody")
        await chat.until(lambda: "is not on this machine" in chat.notices())


async def test_what_is_saved_is_there_again(open_chat: OpenChat, history_path: Path) -> None:
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        chat_id = chat.app.chat.conversation.chat_id
    async with open_chat(chat_id) as chat:
        assert PARIS in chat.screen()
        assert "▸ reasoned" in chat.screen()
        await chat.press("up")
        assert chat.app.chat.prompt.text == FRANCE
        await chat.press("down")
        assert await chat.ask("What is 17 + 25?") == "17 + 25 = 42"
        await begin_counting(chat)
    history = History(history_path)  # it was left while an answer streamed
    last = history.branch(history.chats()[0].leaf_id)[-1]
    assert last.state == "stopped"
    assert "5, 6, 7" in last.content
    history.close()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (30, 10)])
async def test_sizes(open_chat: OpenChat, size: tuple[int, int]) -> None:
    async with open_chat(size=size) as chat:
        await chat.ask(FRANCE)
        await chat.until(lambda: "nano │ medium" in chat.screen())
        assert "Paris" in chat.screen()
        await chat.press("f1")
        await chat.until(lambda: "Keys" in chat.screen())
        await chat.press("escape")
        assert "Paris" in chat.screen()


@pytest.mark.parametrize("keys", [["f1"], ["f2"], ["f3"], [*"/tools", "enter"], ["f9"], ["f12"]])
async def test_escape_while_a_dialog_opens(open_chat: OpenChat, keys: list[str]) -> None:
    """Both come at once from a terminal; the app ended with a traceback."""
    async with open_chat() as chat:
        await chat.ask(FRANCE)
        for key in (*keys, "escape"):
            chat.app.post_message(Key(key, key if len(key) == 1 else None))
        await chat.until(lambda: not isinstance(chat.app.screen, ModalScreen))
        await chat.pilot.pause(0.5)
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, ModalScreen))
        assert await chat.ask(FRANCE) == PARIS


async def test_ctrl_q_is_ctrl_c(open_chat: OpenChat) -> None:
    """It stops an answer and ends nothing, unless it is pressed twice."""
    async with open_chat() as chat:
        await chat.enter("Count from 1 to 900.")
        await chat.until(lambda: "20, 21" in chat.screen())
        await chat.type("a draft")
        await chat.press("ctrl+q")
        assert chat.app.chat.prompt.text == ""
        assert chat.app.chat.is_answering
        await chat.press("ctrl+q")
        await chat.until(lambda: chat.turns()[-1].state == "stopped")
        await chat.press("f1")
        await chat.press("ctrl+q")
        assert not isinstance(chat.app.screen, ModalScreen)
        await chat.press("ctrl+q")
        assert "Ctrl-C again quits." in chat.notices()
        assert chat.app.is_running
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)


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
