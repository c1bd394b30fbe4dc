"""Tools in the chat: a question shows all that would run, and nothing runs until it is allowed."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from textual.events import Focus, Key

from gptoss_local.base.settings import ToolCommand
from gptoss_local.talk.answer import wire_call
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Arguments, Page, RunnableTool, ToolResult
from gptoss_local.talk.what_runs import about_text, always_text, shell_text
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import OpenChat, run_chat
from tests.tui.scripted import ScriptedServer, call, installed
from tui.screens.models import ModelsDialog

SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
SHELL = {"sh": ToolCommand(command=("sh", "-c", "{cmd}"), parameters=SCHEMA)}
SITE = Page(1, "https://www.example.org/a_(b)", "A page")


def weather(log: Path) -> dict[str, ToolCommand]:
    """A tool that notes its arguments."""
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); print(sys.argv[2])"
    result = '{"temperature": 21, "description": "sunny"}'
    city = {"location": {"type": "string", "description": "The name of the city"}}
    tool = ToolCommand(
        command=(sys.executable, "-c", code, str(log), result),
        description="Gets the current weather in the provided location.",
        parameters={"type": "object", "properties": city, "required": ["location"]},
    )
    return {"get_current_weather": tool}


def shell(cmd: str) -> ScriptedServer:
    """A server with a model that asks for one command, and then is content."""
    return ScriptedServer("well", before=[[call("sh", cmd=cmd)]])


async def runs(_arguments: Arguments) -> str:
    return "ran"


async def finds(_arguments: Arguments) -> ToolResult:
    return ToolResult("L0: a page", pages=(SITE,))


def sources() -> tuple[OwnSource, OwnSource]:
    python = OwnSource("python", "runs code", {"python": runs})
    web = OwnSource("web", "searches", {"web.search": finds}, is_on=False)
    return python, web


async def test_a_call_runs_once_it_is_approved(open_chat: OpenChat, tmp_path: Path) -> None:
    log, question = tmp_path / "log", "What is the weather in Tokyo?"
    async with open_chat(tools=weather(log)) as chat:
        await chat.enter("/set temperature 0")
        await chat.enter(question)
        await chat.asked()
        await chat.shows("asks to run get_current_weather", '"location": "Tokyo"')
        await chat.press("x", *"my yes", "enter")  # a message that waits
        assert chat.app.chat.question.display
        assert not log.exists()
        await chat.press("escape")  # takes it back
        await chat.press("ctrl+c")
        await chat.answer("Allow once")
        assert await chat.answered() == "It is 21 degrees and sunny in Tokyo."
        assert msgspec.json.decode(log.read_bytes()) == {"location": "Tokyo"}
        await chat.shows("▸ calls get_current_weather(location: 'Tokyo')")
        chat_id = chat.app.chat.conversation.chat_id
    async with open_chat(chat_id, tools=weather(log)) as chat:
        await chat.shows("▸ get_current_weather → 1 line")
        chat.views()[2].focus()
        await chat.press("space")
        await chat.shows("▾ get_current_weather")
        await chat.press("escape")  # back to the input
        await chat.enter(question.replace("Tokyo", "Rome"))
        await chat.answer("Allow in this chat", sure=True)  # again
        assert "Rome" in await chat.answered()
        await chat.ask(question)  # without a question
        assert log.read_text().count("Tokyo") == 2


async def test_escape_kills_a_tool_that_runs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = shell(f"echo $$ > {pid}; sleep 60")
    async with run_chat(server, tmp_path / "c", tools=SHELL) as chat:
        await chat.enter("run it")
        await chat.answer("Allow once")
        await chat.until(lambda: pid.exists() and pid.read_text())
        await chat.shows("running sh")
        await chat.press("escape")
        await chat.until(lambda: not chat.app.chat.is_answering)
        await chat.until(lambda: not psutil.pid_exists(int(pid.read_text())))
        assert chat.turns()[-1].content == "The user stopped this call."
        await chat.press("alt+r")  # the model continues with that
        assert await chat.answered() == "well"
        assert len(chat.turns()) == 4


@pytest.mark.parametrize("is_read", [True, False])
async def test_lines_that_were_never_on_the_screen(tmp_path: Path, is_read: bool) -> None:
    """Allowing them is asked for twice, and says how many they are."""
    cmd = "echo hello" + "\n" * 60 + "\n".join(f"echo {n} >> log" for n in range(60))
    server = shell(f"{cmd}\ntouch LAST")

    def n_unseen() -> int:
        found = re.search(r"(\d+) lines? not seen", chat.screen())
        return int(found[1]) if found else 0

    async with run_chat(server, tmp_path / "c", size=(40, 24), tools=SHELL) as chat:
        await chat.enter("run it")
        await chat.asked()
        await chat.shows("hello\\n\\n", "lines not seen")
        assert "LAST" not in chat.screen()
        while is_read and (n := n_unseen()):
            await chat.press("pagedown")
            await chat.until(lambda n=n: n_unseen() <= max(0, n - 10))  # rows of a page
        assert ("touch LAST" in chat.screen()) == is_read
        await chat.answer("Allow once")
        if not is_read:
            assert not (tmp_path / "log").exists()
            await chat.shows("never on the screen")
            await chat.press("enter")  # the first answer is No
            await chat.shows("No, because")
            await chat.answer("Allow once", sure=True)
        await chat.answered()
    assert (tmp_path / "LAST").exists()


@pytest.mark.quick
async def test_a_terminal_that_has_no_room_for_it_allows_nothing(tmp_path: Path) -> None:
    async with run_chat(shell("touch RAN"), tmp_path / "c", size=(40, 5), tools=SHELL) as chat:
        await chat.enter("run it")
        await chat.asked()
        await chat.press("down", "down", "enter", "down", "enter")
        assert chat.app.chat.question.display
        await chat.pilot.resize_terminal(80, 24)
        await chat.shows("touch RAN")
        assert not (tmp_path / "RAN").exists()
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
def test_words_of_a_command(word: str, shown: str) -> None:
    assert shell_text(["sh", word]) == f"sh {shown}"


@pytest.mark.quick
def test_what_a_tool_is_about_is_safe_to_show() -> None:
    about = "is of \u202e\u05d0 (x\u0301\u0302\u0303\n)"
    tool = RunnableTool("f", "", {}, runs, about, "a\u200bb")
    assert about_text(tool) == r"is of \u202e" + "\u200e\u05d0\u200e (x\u0301\u0302" + r"\u0303\n)"
    assert always_text(tool) == r"this tool of a\u200bb"


async def test_arguments_show_what_cannot_be_seen_and_a_no_has_a_reason(tmp_path: Path) -> None:
    hidden = "rm \u200breport\u202etxt.exe"
    hebrew = "cp \u05d0\u05d1 1 \u0633\u0644"  # terminals that know such scripts would swap them
    calls = [[call("sh", cmd=cmd)] for cmd in (hidden, hebrew)]
    server = ScriptedServer("well", before=calls)
    kept = "cp \u200e\u05d0\u05d1\u200e 1 \u200e\u0633\u0644\u200e"
    async with run_chat(server, tmp_path / "c", tools=SHELL) as chat:
        await chat.enter("run it")
        await chat.shows(r"sh -c $'rm \u200breport\u202etxt.exe'")
        await chat.shows(r'"cmd": "rm \u200breport\u202etxt.exe"')
        await chat.answer("No, because")
        await chat.press(*"it ")
        chat.app.focused.post_message(Focus())  # on a busy machine it comes so late
        await chat.pilot.pause()
        await chat.press(*"lies")
        await chat.shows("it lies")
        await chat.press("enter")
        await chat.shows(f"sh -c '{kept}'", f'"cmd": "{kept}"')
        assert server.asked[-1] == "The user denied this call. it lies"
        await chat.answer("No")
        await chat.answered()


async def test_a_draft_keeps_the_keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every letter of the message is in the input, and none answers."""
    text = "a message that takes a while, yes"
    async with run_chat(shell("touch RAN"), tmp_path / "c", tools=SHELL) as chat:
        chat.app.chat.prompt.insert("run it")
        for key in ("enter", *text):  # at once, so that the question comes among them
            chat.app.post_message(Key("space" if key == " " else key, key[:1]))
        await chat.asked()
        await chat.press("up", "down", "down")
        assert chat.app.chat.prompt.text == text
        await chat.press("shift+tab", "down", "a")  # a letter continues with the message
        assert chat.app.chat.prompt.text == f"{text}a"
        await chat.press("enter")
        await chat.shows("» a message")
        with monkeypatch.context() as patched:
            patched.setattr("tui.widgets.question._HASTE_S", 60.0)
            await chat.press("left", "down", "down", "enter")  # in haste, so they are no answer
            assert chat.app.chat.question.display
            assert not (tmp_path / "RAN").exists()
        await chat.answer("Allow once")
        await chat.answered()
    assert (tmp_path / "RAN").exists()


async def test_a_list_that_comes_late_does_not_open(tmp_path: Path) -> None:
    """The server takes a while to answer, and the user types on."""
    may_list = asyncio.Event()

    class Late(ScriptedServer):
        async def get(self, path: str, answer_type: object) -> Any:
            if path == "/api/tags":
                await may_list.wait()
            return await super().get(path, answer_type)

    async with run_chat(Late(tags=[installed("nano")]), tmp_path / "c") as chat:
        await chat.type("/model")
        chat.app.post_message(Key("enter", "\r"))  # the pilot would wait for the server
        await chat.until(lambda: chat.app.chat.prompt.text == "")
        for n, letter in enumerate("hello there"):
            if n == 5:
                may_list.set()
            chat.app.post_message(Key("space" if letter == " " else letter, letter))
            await asyncio.sleep(0.01)
            assert not isinstance(chat.app.screen, ModelsDialog)
        await chat.tells("You typed on, so models did not open.")
        assert chat.app.chat.prompt.text == "hello there"


async def test_what_is_on_belongs_to_the_chat(tmp_path: Path, history_path: Path) -> None:
    def declared() -> set[str]:
        return {tool["function"]["name"] for tool in server.bodies[-1].get("tools", [])}

    box, server = toolbox_of(*sources()), ScriptedServer("Well.")
    async with run_chat(server, history_path, make_toolbox=lambda: box) as chat:
        await chat.enter("/tools")
        await chat.shows("off   web")
        await chat.press("down", "enter")
        await chat.shows("on    web")
        await chat.press("escape")
        await chat.ask("go")
        first = chat.app.chat.conversation.chat_id or 0
        assert declared() == {"python", "web.search"}
        await chat.press("ctrl+n")
        await chat.ask("go")
        assert declared() == {"python"}
        await chat.enter("/tools python")
        await chat.enter("/tools nothing")
        await chat.tells("there is no tool 'nothing'")
        await chat.ask("go")
        assert declared() == set()
    history = History(history_path)
    assert [history.chat(n).options for n in (first, 2)] == [{"tools": "python,web"}, {"tools": ""}]
    history.set_options(first, {"tools": "web, gone"})
    history.close()
    box = toolbox_of(*sources())
    async with run_chat(server, history_path, first, make_toolbox=lambda: box) as chat:
        await chat.until(lambda: box.on == {"web"})
        await chat.enter("/tools python")
        assert chat.app.chat.conversation.options["tools"] == "gone,python,web"


async def test_citations_are_links_and_the_text_stays(history_path: Path) -> None:
    written = "It is so 【1†L3-L7】, and so【9†L1】."
    web = OwnSource("web", "searches", {"web.search": finds})
    server = ScriptedServer(before=[[call("web.search")], written])
    async with run_chat(server, history_path, make_toolbox=lambda: toolbox_of(web)) as chat:
        await chat.enter("go")
        await chat.answer("Allow once")
        assert await chat.answered() == written
        await chat.shows("It is so www.example.org ↗", "【9†L1】")  # it has not read page 9
        assert "【1†" not in chat.screen()
        await chat.enter("/copy")
        assert chat.app.clipboard == written
    web = OwnSource("web", "searches", {"web.search": finds})
    async with run_chat(server, history_path, 1, make_toolbox=lambda: toolbox_of(web)) as chat:
        await chat.shows("It is so www.example.org ↗")
        assert web.chats == [[SITE]]
        await chat.press("ctrl+n")
        assert web.chats == [[SITE], []]
    assert web.n_closed == 1


async def test_calls_of_a_chat_that_was_killed_or_that_the_page_runs(history_path: Path) -> None:
    """Each call has a result for the model, even if the process that ran it died."""
    history = History(history_path)
    made = history.new_chat("nano", "low")
    question = history.add(made, None, "user", "go")
    calls = [
        wire_call(each)
        for each in (call("python", code="1"), call("web.search"), call("python", code="2"))
    ]
    answer = history.add(made, question.id, "assistant", "", tool_calls=calls)
    history.add(made, answer.id, "tool", "", tool_name="python", state="stopped")
    server, box = ScriptedServer("Well."), toolbox_of(*sources())
    async with run_chat(server, history_path, made, make_toolbox=lambda: box,
                        notifications=True) as chat:  # fmt: skip
        await chat.shows("python → ■ stopped")
        assert await chat.ask("What now?") == "Well."
        assert [(m["role"], m["content"]) for m in server.bodies[0]["messages"]][2:] == [
            ("tool", "This call was interrupted; it is not known how far it came."),
            ("tool", "Not run."),
            ("tool", "Not run."),
            ("user", "What now?"),
        ]
        asked = history.add(made, chat.turns()[-1].id, "user", "Asked on the page")
        answer = history.add(made, asked.id, "assistant", "", tool_calls=calls[:1])
        turn = history.add(made, answer.id, "tool", "", tool_name="python", state="streaming")
        await chat.shows("python → …")
        await chat.enter("And?")
        await chat.shows("another window writes this answer")
        history.update(turn.id, content="3.14", state="done", stats={"seconds": 0.5})
        await chat.shows("python → 1 line, 0.5 s: 3.14")
    history.close()
