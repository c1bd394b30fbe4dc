"""A question shows all that would run, and takes the keyboard from no one who types."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key

from gptoss_local.base.settings import ToolCommand
from gptoss_local.talk.conversation.what_runs import about_text, always_text, shell_text
from gptoss_local.talk.tools import Arguments, RunnableTool
from tests.tui.running_chat import Chat, run_chat
from tests.tui.wire import answer_of, installed, running
from tui.screens.models import ModelsDialog

SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
SHELL = {"sh": ToolCommand(command=("sh", "-c", "{cmd}"), parameters=SCHEMA)}


class Caller:
    """A server whose model calls a tool once, after a while, and then is content."""

    def __init__(self, cmd: str, after_s: float = 0.0) -> None:
        self._cmd, self._after_s = cmd, after_s
        self._n_asked = 0
        self.may_list = asyncio.Event()

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(self._after_s)
        self._n_asked += 1
        call = {"function": {"name": "sh", "arguments": {"cmd": self._cmd}}}
        calls = {"tool_calls": [call]} if self._n_asked == 1 else {}
        yield {"message": {"content": "well", **calls}, "done": False}
        yield {"message": {"content": ""}, "done": True}

    async def get(self, path: str, _answer_type: object) -> Any:
        if path == "/api/tags":
            await self.may_list.wait()
        return answer_of(path, tags=[installed("nano")], loaded=[running("nano", 9)])

    async def post(self, path: str, body: dict[str, Any], _answer_type: object) -> Any:
        raise AssertionError(path)


async def asked(chat: Chat) -> None:
    await chat.enter("run it")
    await chat.asked()


@pytest.mark.parametrize("size", [(100, 30), (40, 16)])
async def test_what_stands_after_many_line_ends_is_seen(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    cmd = "echo hello" + "\n" * 80 + "; touch PWNED"
    async with run_chat(Caller(cmd), tmp_path / "c", size=size, tools=SHELL) as chat:
        await asked(chat)
        await chat.shows("hello\\n\\n")
        seen = chat.screen()
        while "not seen" in chat.screen():
            await chat.press("pagedown")
            await chat.pilot.pause(0.3)
            seen += chat.screen()
        assert "; touch PWNED" in seen
        await chat.answer("No")
        await chat.answered()
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("is_read", [True, False])
async def test_lines_that_were_never_on_the_screen(tmp_path: Path, is_read: bool) -> None:
    """Allowing them is asked for twice, and says how many they are."""
    cmd = "\n".join(f"echo {n} >> log" for n in range(60)) + "\ntouch LAST"
    async with run_chat(Caller(cmd), tmp_path / "c", size=(80, 24), tools=SHELL) as chat:
        await asked(chat)
        await chat.shows("lines not seen")
        assert "LAST" not in chat.screen()
        while is_read and "not seen" in chat.screen():
            await chat.press("pagedown")
            await chat.pilot.pause(0.15)
        await chat.answer("Allow once")
        assert (tmp_path / "log").exists() == is_read
        if not is_read:
            await chat.shows("lines were never on the screen")
            await chat.press("enter")  # the first answer is No
            await chat.shows("No, because")
            await chat.answer("Allow once", sure=True)
        await chat.answered()
    assert (tmp_path / "LAST").exists()


@pytest.mark.quick
async def test_a_terminal_that_has_no_room_for_it_allows_nothing(tmp_path: Path) -> None:
    async with run_chat(Caller("touch RAN"), tmp_path / "c", size=(40, 5), tools=SHELL) as chat:
        await asked(chat)
        await chat.press("down", "down", "enter", "down", "enter")
        await chat.pilot.pause(0.3)
        assert chat.app.chat.question.display
        await chat.pilot.resize_terminal(80, 24)
        await chat.shows("touch RAN")
        await chat.answer("Allow once")
        await chat.answered()
    assert (tmp_path / "RAN").exists()


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("plain", "plain"),
        ("two words", "'two words'"),
        ("it's 你好 👍", "'it'\"'\"'s 你好 👍'"),
        ("a\nb", "$'a\\n\nb'"),
        ("a\n\n\nb\n", "$'a\\n\\n\\n\nb\\n'"),
        ("tab\t \u200b\u3164\u00a0\u202e\ufeff", r"$'tab\t \u200b\u3164\u00a0\u202e\ufeff'"),
        ("\x1b]0;x\x07\x7f\x9b", r"$'\u001b]0;x\u0007\u007f\u009b'"),
        ("back\\slash and 'quote'\n", r"$'back\\slash and \'quote\'\n'"),
        ("\\n is not a line end\n", r"$'\\n is not a line end\n'"),
        ("\U000e0041\u2028\r", r"$'\U000e0041\u2028\r'"),
        ("", "''"),
        ("e\u0301 \u0928\u094b \u0e17\u0e35\u0e48", "'e\u0301 \u0928\u094b \u0e17\u0e35\u0e48'"),
        ("a\u0301\u0302\u0303\u0304", "$'a\u0301\u0302\\u0303\\u0304'"),
        ("\u0301 =\u0338 o\u0338 1\u20e3 \u0489", r"$'\u0301 =\u0338 o\u0338 1\u20e3 \u0489'"),
    ],
)  # fmt: skip
def test_words(word: str, shown: str) -> None:
    assert shell_text(["sh", word]) == f"sh {shown}"


@pytest.mark.quick
async def test_what_a_tool_is_about_is_safe_to_show(tmp_path: Path) -> None:
    tool = RunnableTool(
        "f", "", {}, _never, "is of \u202e\u05d0 (x\u0301\u0302\u0303\n)", "a\u200bb"
    )
    assert about_text(tool) == r"is of \u202e" + "\u200e\u05d0\u200e (x\u0301\u0302" + r"\u0303\n)"
    assert always_text(tool) == r"this tool of a\u200bb"


async def _never(_: Arguments) -> str:
    raise AssertionError


async def test_a_draft_keeps_the_keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every letter of the message is in the input, and none answers."""
    text = "a message that takes a while, yes"
    async with run_chat(Caller("touch RAN", 0.3), tmp_path / "c", tools=SHELL) as chat:
        await chat.enter("run it")
        for letter in text:
            await chat.pilot.press("space" if letter == " " else letter)
            await asyncio.sleep(0.01)
        await chat.asked()
        await chat.press("up", "down", "down")
        assert chat.app.chat.prompt.text == text
        await chat.press("shift+tab", "down", "a")  # a letter goes on with the message
        assert chat.app.chat.prompt.text == f"{text}a"
        await chat.press("enter")
        await chat.shows("» a message")
        assert chat.app.chat.question.display
        with monkeypatch.context() as patched:
            patched.setattr("tui.widgets.question._HASTE_S", 60.0)
            await chat.press("left", "down", "down", "enter")  # in haste, so they are no answer
            assert chat.app.chat.question.display
            assert not (tmp_path / "RAN").exists()
        await chat.answer("Allow once")
        await chat.answered()
    assert (tmp_path / "RAN").exists()


async def test_a_list_that_comes_late_does_not_open(tmp_path: Path) -> None:
    """The server takes a while to answer, and the user goes on typing."""
    caller = Caller("")
    async with run_chat(caller, tmp_path / "c") as chat:
        await chat.type("/model")
        chat.app.post_message(Key("enter", "\r"))  # the pilot would wait for the server
        for n, letter in enumerate("hello there"):
            await asyncio.sleep(0.05)
            if n == 5:
                caller.may_list.set()
            chat.app.post_message(Key("space" if letter == " " else letter, letter))
            assert not isinstance(chat.app.screen, ModelsDialog)
        await chat.pilot.pause()
        assert chat.app.chat.prompt.text == "hello there"
        await chat.tells("You typed on, so models did not open.")


@pytest.mark.parametrize(
    ("cmd", "command", "argument"),
    [
        (
            "rm \u200breport\u00a0\u202etxt.exe\u2800",
            r"$'rm \u200breport\u00a0\u202etxt.exe\u2800'",
            r"rm \u200breport\u00a0\u202etxt.exe\u2800",
        ),
        (  # terminals that know such scripts would swap the two words
            "cp \u05d0\u05d1 1 \u0633\u0644",
            "'cp \u200e\u05d0\u05d1\u200e 1 \u200e\u0633\u0644\u200e'",
            "cp \u200e\u05d0\u05d1\u200e 1 \u200e\u0633\u0644\u200e",
        ),
    ],
)
async def test_arguments_show_what_cannot_be_seen(
    tmp_path: Path, cmd: str, command: str, argument: str
) -> None:
    async with run_chat(Caller(cmd), tmp_path / "c", tools=SHELL) as chat:
        await asked(chat)
        await chat.shows(f"sh -c {command}")
        await chat.shows(f'"cmd": "{argument}"')
        await chat.answer("No")
        await chat.answered()
