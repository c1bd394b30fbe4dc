"""Keys: no click, answer or question takes a typed character; the user's own; the documented."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from textual.events import Key, Paste

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ChatEvent
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer, call, installed
from tests.tui.test_tools import SHELL
from tui.actions import REGISTRY
from tui.app import binding_names, check_keys
from tui.screens.chat import ChatScreen

PAGE = Path(__file__).parents[2] / "docs" / "chat.md"
TYPED = "ecgynaArxq1 *_é"  # keys of the messages among them
_N_STEPS = 70


class Talker(ScriptedServer):
    """Asks for a call after each message, and answers slowly."""

    def __init__(self) -> None:
        super().__init__("One.\n\n", [f"Word {n}. " for n in range(12)], per_s=60)

    async def stream_chat(
        self, body: dict[str, Any], *arguments: object
    ) -> AsyncGenerator[ChatEvent, None]:
        if body["messages"][-1]["role"] == "user":
            yield call("sh", cmd="touch RAN")
        async for event in super().stream_chat(body, *arguments):
            yield event


def characters(text: str) -> Counter[str]:
    return Counter("".join(text.split()))


async def walk(chat: Chat, chance: random.Random) -> str:
    """Type, paste, click, select and open dialogs at random; returns all that was typed."""
    typed, (width, _) = "", chat.app.size
    for _ in range(_N_STEPS):
        match chance.choice(["type", "type", "type", "paste", "click", "drag", "enter", "dialog"]):
            case "type":
                for letter in chance.choices(TYPED, k=chance.randint(1, 6)):
                    typed += letter
                    chat.app.post_message(Key("space" if letter == " " else letter, letter))
            case "paste":
                typed += "pasted"
                chat.app.post_message(Paste("pasted"))
            case "click" | "drag" as act:
                start = chat.app.chat.query_one("#start")  # until there is a message
                rows = chat.app.chat.transcript.region or start.region
                places = [
                    (chance.randrange(width), chance.randrange(rows.y, rows.bottom))
                    for _ in range(2)
                ]
                await chat.pilot.mouse_down(offset=places[0])
                if act == "drag":
                    await chat.pilot.hover(offset=places[1])
                await chat.pilot.mouse_up(offset=places[act == "drag"])
                if chat.app.chat.get_selected_text():
                    await chat.pilot.press("ctrl+c")
            case "enter":
                await chat.pilot.press("enter")
            case "dialog":
                await chat.pilot.press(chance.choice(["f1", "ctrl+p"]))
                await chat.until(lambda: not isinstance(chat.app.screen, ChatScreen))
                await chat.pilot.press("escape")
                await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await asyncio.sleep(chance.choice([0, 0, 0.02, 0.1]))
    await chat.pilot.pause()
    return typed


@pytest.mark.parametrize("seed", range(2))
async def test_every_character_is_in_the_draft_or_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("tui.widgets.question._HASTE_S", 60.0)  # this user is always in haste
    async with run_chat(Talker(), tmp_path / "c", tools=SHELL) as chat:
        typed = await walk(chat, random.Random(seed))
        screen = chat.app.chat
        while not screen.queue.is_empty or screen.is_answering:
            if screen.question.display:
                await chat.press("shift+tab", "enter")
            await chat.pilot.pause(0.1)
        sent = "".join(turn.content for turn in chat.turns() if turn.role == "user")
        assert characters(sent + screen.prompt.text) == characters(typed)
    assert not (tmp_path / "RAN").exists()


async def test_drafts_come_back(tmp_path: Path) -> None:
    """One was cleared, one was in the input at the end, and one waited for an answer."""
    paste = "\n".join(f"line {n}" for n in range(20))
    async with run_chat(ScriptedServer("a", ["b"], 30, holds=True), tmp_path / "c") as chat:
        prompt = chat.app.chat.prompt
        await chat.type("first")
        await chat.press("ctrl+c")
        assert prompt.text == ""
        await chat.press("up")
        assert prompt.text == "first"
        await chat.press("ctrl+c", *"sent", "enter", *"waits", "enter")
        prompt.insert(prompt.folded.fold_paste(paste))
    async with run_chat(ScriptedServer(), tmp_path / "c") as chat:
        prompt = chat.app.chat.prompt
        await chat.press("up")
        assert prompt.text.startswith("waits\n\n[pasted #1: 20 lines")
        await chat.press("enter")
        await chat.answered()
        assert chat.turns()[0].content == f"waits\n\n{paste}"
    async with run_chat(ScriptedServer(), tmp_path / "c") as chat:
        for _ in range(2):
            await chat.press("up")
            assert chat.app.chat.prompt.text == "first"


async def test_keys_are_the_users_and_the_help_lists_them(history_path: Path) -> None:
    keys = {"chat.effort": "f9", "turn.copy": "y"}
    server = ScriptedServer("Well.")
    async with run_chat(server, history_path, size=(100, 120), keys=keys) as chat:
        await chat.press("f4")
        await chat.shows("nano │ medium")
        await chat.press("f9")
        await chat.shows("nano │ high")
        await chat.ask("go")
        chat.views()[-1].focus()
        await chat.press("y")
        assert chat.app.clipboard == "Well."
        await chat.press("escape", "f1")
        shown = chat.screen().replace("│", "")
        for key, what in (("F9", "Effort"), ("F1, Alt-H", "Help"), ("y", "Copy"),
                          ("Up, Down", "what you sent before"), ("Enter", "Send"),
                          ("Space, Enter", "Reasoning"), ("F2", "Rename")):  # fmt: skip
            pattern = rf"^\W*{re.escape(key)}  +.*{what}"
            assert re.search(pattern, shown, re.MULTILINE | re.IGNORECASE), (key, what)


@pytest.mark.quick
def test_keys_and_commands_are_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(binding_names()) > 20
    assert [name for name in binding_names() if f"`{name}`" not in page] == []
    assert [c.name for c in REGISTRY.commands if f"/{c.name}" not in page] == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"chat.efort": "f9"}, "Did you mean chat.effort?"),
        ({"f9": "effort"}, "There are chat.help"),
        ({"chat.effort": "ctrl-t"}, "As f9, ctrl+t"),
        ({"chat.effort": ""}, "As f9, ctrl+t"),
    ],
    ids=str,
)
def test_keys_that_nothing_has(keys: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_keys(keys)
    assert said in caught.value.hint


EDITS = {  # a key of the terminal, and as a program reads its bytes
    "left": "\x1b[D", "right": "\x1b[C", "home": "\x1b[H", "end": "\x1b[F", "backspace": "\x7f",
    "ctrl+a": "\x01", "ctrl+e": "\x05", "ctrl+w": "\x17", "delete": "\x1b[3~",
}  # fmt: skip
BURST = st.lists(st.sampled_from([*"abc de", *EDITS, *EDITS]), max_size=30)


def line_of(keys: list[str]) -> str:
    """What another line editor makes of the keys."""
    with create_pipe_input() as pipe:
        pipe.send_text("".join(EDITS.get(key, key) for key in keys) + "\r")
        return PromptSession(input=pipe, output=DummyOutput()).prompt()


async def burst(chat: Chat, keys: list[str]) -> None:
    """Press all keys before the first of them is read."""
    for key in keys:
        letter = key if len(key) == 1 else None
        chat.app.post_message(Key("space" if key == " " else key, letter))
    await chat.until(lambda: not chat.app.message_queue_size)
    await chat.pilot.pause()


async def test_keys_in_one_write_are_read_in_order(history_path: Path) -> None:
    lines: dict[tuple[str, ...], str] = {}

    @settings(database=None, deadline=None)
    @given(BURST)
    @example([" ", "a", "home", "b"])
    @example([" ", "a", "ctrl+a", "b"])
    def collect(keys: list[str]) -> None:
        lines[tuple(keys)] = line_of(keys)

    await asyncio.to_thread(collect)
    async with run_chat(ScriptedServer("Well."), history_path) as chat:
        prompt = chat.app.chat.prompt
        for keys, line in lines.items():
            await burst(chat, list(keys))
            assert prompt.text == line, keys
            prompt.text = ""
        await burst(chat, [*"helo", "backspace", *"p me", "enter", *"/effort high", "enter", *"x"])
        await chat.answered()
        assert (chat.turns()[0].content, prompt.text) == ("help me", "x")
        await chat.shows("nano │ high")
        await burst(chat, ["backspace", *"می\u200cشود 👩\u200d👧"])
        assert prompt.text == "می\u200cشود 👩\u200d👧"
        prompt.text = ""
        await burst(chat, ["ctrl+f", *"Wele", "backspace", *"l", "enter", *"y"])
        await chat.until(lambda: any(notice.startswith("1 of 1") for notice in chat.told))
        assert prompt.text == "y"


async def test_keys_in_one_write_reach_what_the_keys_before_open(history_path: Path) -> None:
    server = ScriptedServer("Well.")
    async with run_chat(server, history_path) as chat:
        screen = chat.app.chat
        for text in ("first", "second"):
            await burst(chat, [*text, "enter", "ctrl+n"])
        await chat.until(lambda: not any(room.dialogue.is_busy for room in screen.rooms))
        assert {chat.title for chat in screen.parts.history.chats()} == {"first", "second"}
        await burst(chat, ["f2", *"first", "enter", "x"])
        assert (screen.conversation.title, screen.typed) == ("first", "x")
        await burst(chat, ["backspace", "ctrl+p", *"temporary", "enter", "y"])
        assert (screen.conversation.is_temporary, screen.typed) == (True, "y")
        await burst(chat, ["backspace", *"/theme", "enter", *"nord", "enter", "z"])
        assert (chat.app.theme, screen.typed) == ("nord", "z")
        server.may_end.clear()
        await burst(chat, ["enter", "ctrl+c"])
        await chat.answered()
        assert chat.turns()[-1].state == "stopped"


async def test_keys_that_come_too_fast_close_a_dialog_once(
    history_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui.app._PATIENCE_S", 0.0)  # as where the machine is slow
    async with run_chat(ScriptedServer("Well.", tags=[installed("nano")]), history_path) as chat:
        for opens in ("f3", "f2", "f12", "ctrl+p"):
            await chat.press(opens)
            await chat.until(lambda: chat.app.screen is not chat.app.chat)
            await burst(chat, ["enter", "enter", "escape", "escape"])
            await chat.until(lambda: chat.app.screen is chat.app.chat)
        assert await chat.ask("go") == "Well."


class SilentServer(ScriptedServer):
    async def get(self, path: str, answer_type: object) -> Any:
        await self.may_end.wait()
        return await super().get(path, answer_type)


async def test_a_server_that_does_not_answer_keeps_no_key(history_path: Path) -> None:
    server = SilentServer(holds=True)
    async with run_chat(server, history_path) as chat:
        for n, keys in enumerate((["f3"], [*"/model", "enter"])):
            await burst(chat, [*keys, *"abc"])
            await chat.shows("│ abc ")
            await chat.press("ctrl+c")
            await chat.until(lambda n=n: len(chat.told) == n + 1)  # put aside
        server.may_end.set()
        await chat.tells("You typed on, so models did not open.")


async def test_stop_and_send_takes_the_letters_before_it(history_path: Path) -> None:
    server = ScriptedServer("a", ["b"], 30, holds=True)
    async with run_chat(server, history_path) as chat:
        await burst(chat, [*"first", "enter"])
        await chat.until(lambda: chat.app.chat.is_answering)
        await burst(chat, [*"secoml", "left", "backspace", "n", "end", "backspace", "d", "ctrl+s"])
        await chat.until(lambda: [t.content for t in chat.turns() if t.role == "user"][1:] != [])
        assert [t.content for t in chat.turns() if t.role == "user"] == ["first", "second"]


async def test_ctrl_c_copies_once_and_alt_types_no_letter(history_path: Path) -> None:
    async with run_chat(ScriptedServer("Well, ", ["well."], 30), history_path) as chat:
        screen = chat.app.chat
        await chat.ask("go")
        await chat.press("alt+r")
        await chat.shows("‹ 2/2 ›")
        await chat.answered()
        await chat.press(*"ab", "alt+d", "alt+x", "alt+full_stop", "shift+left", "ctrl+c")
        assert (screen.prompt.text, chat.app.clipboard) == ("ab", "b")
        assert chat.told[-1] == "Copied 1 character."
        await chat.press("ctrl+c")
        assert screen.prompt.text == ""
        for keys in (["ctrl+c"], [*"/effort high", "enter", "ctrl+c"]):  # not twice in a row
            await burst(chat, keys)
            assert chat.told[-1] == "Ctrl-C again quits."
        await chat.enter("/temporary")
        await chat.press("ctrl+n")
        assert screen.conversation.is_temporary
        await chat.enter("/temporary")
        assert not screen.conversation.is_temporary
