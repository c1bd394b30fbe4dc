"""What fails: the chat says it, keeps what there is, and goes on."""

from pathlib import Path

from tests.conftest import RunningServer
from tests.tui.running_chat import FRANCE, PARIS, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer
from tests.tui.test_chat import begin_counting
from tui.widgets.answer_view import AnswerView


async def test_a_dead_engine(open_own_chat: OpenChat, own_server: RunningServer) -> None:
    async with open_own_chat() as chat:
        await begin_counting(chat)
        engine = own_server.engine()
        assert engine is not None
        engine.kill()
        assert "5, 6, 7" in await chat.answered()
        assert chat.turns()[-1].state == "failed"
        await chat.until(lambda: "stopped unexpectedly" in chat.screen())
        assert await chat.ask(FRANCE) == PARIS


async def test_a_server_that_ends(open_own_chat: OpenChat, own_server: RunningServer) -> None:
    async with open_own_chat() as chat:
        await begin_counting(chat)
        own_server.process.kill()
        assert "5, 6, 7" in await chat.answered()
        assert chat.turns()[-1].state == "failed"
        await chat.until(lambda: "✗ failed" in chat.screen())
        await chat.enter(FRANCE)
        await chat.answered()
        await chat.until(lambda: "no server answers" in chat.screen())


async def test_commands_that_wait_for_the_answer(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.enter("/retry")
        await chat.until(lambda: "An answer streams" in chat.notices())
        assert chat.app.chat.is_answering
        await chat.press("escape")
        await chat.answered()


async def test_palette(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+p")
        await chat.pilot.press(*"how long")
        await chat.until(lambda: "/effort" in chat.screen())
        await chat.pilot.pause(0.5)
        await chat.press("down", "enter")
        await chat.until(lambda: "nano │ high" in chat.screen())


async def test_an_answer_cannot_drive_the_terminal(history_path: Path) -> None:
    written = "\x1b]52;c;aGk=\x07 **bold** \x1b[2J [link](http://x.test)\r\n\r\nfrom\u202e"
    async with run_chat(ScriptedServer("", written, 1000), history_path) as chat:
        assert await chat.ask("go") == written  # a character at a time, and all of it stored
        assert "\x1b" not in chat.screen()
        assert "\\u001b]52;c;aGk=\\u0007 bold \\u001b[2J" in chat.screen()
        assert "from\\u202e" in chat.screen()
        assert "\\u000d" not in chat.screen()
        assert chat.app.chat.conversation.request()["messages"][-1]["content"] == written
        await chat.enter("/copy")
        assert chat.app.clipboard == written
        await chat.until(lambda: "bold" in chat.screen() and "**" not in chat.screen())


async def test_a_long_fence_and_a_narrow_window(history_path: Path) -> None:
    code = "".join(f"value({n})\n" for n in range(600))
    async with run_chat(
        ScriptedServer("", [f"```py\n{code}```\n", "end"], 20), history_path
    ) as chat:
        await chat.ask("go")
        await chat.until(lambda: "end" in chat.screen())
        view = chat.app.chat.query_one(AnswerView)
        assert view.size.height == 604  # with a label above, and blank rows around the last word
        assert "value(599)" in chat.screen()
        assert "```" not in chat.screen()
        await chat.pilot.resize_terminal(9, 24)
        await chat.pilot.resize_terminal(16, 24)
        await chat.until(lambda: view.size.height > 1000)
