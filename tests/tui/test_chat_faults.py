"""What fails: the chat says it, keeps what there is, and goes on."""

from pathlib import Path
from typing import Any

from tests.conftest import RunningServer
from tests.tui.running_chat import FRANCE, PARIS, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer
from tests.tui.test_chat import begin_counting
from tui.widgets.line_block import LineBlock


async def test_a_dead_engine(open_own_chat: OpenChat, own_server: RunningServer) -> None:
    async with open_own_chat() as chat:
        await begin_counting(chat)
        engine = own_server.engine()
        assert engine is not None
        engine.kill()
        assert "5, 6, 7" in await chat.answered()
        assert chat.turns()[-1].state == "failed"
        await chat.until(lambda: "unexpectedly stopped" in chat.screen())
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
        await chat.enter("/new")
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
    server = ScriptedServer("\x1b]52;c;aGk=\x07**bold**\x1b[2J [link](http://x.test)", [], 1)
    async with run_chat(server, history_path) as chat:
        content = await chat.ask("go")
        assert "\x1b" not in content
        assert "\x1b" not in chat.screen()
        await chat.until(lambda: "bold" in chat.screen() and "**" not in chat.screen())


async def test_open_blocks_become_markdown(history_path: Path) -> None:
    text = "# Title\n\nSome *words*.\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    pieces = [text[n : n + 3] for n in range(0, len(text), 3)]
    async with run_chat(ScriptedServer("", pieces, 15), history_path) as chat:
        await chat.enter("go")
        await chat.until(lambda: _kinds(chat.app) == ["fence"])
        await chat.answered()
        await chat.until(lambda: _kinds(chat.app) == [])
        assert "*words*" not in chat.screen()
        assert "```" not in chat.screen()
        assert "---" not in chat.screen()
        assert "x = 1" in chat.screen()


async def test_a_long_fence_stays_as_it_streamed(history_path: Path) -> None:
    code = "".join(f"row({n})\n" for n in range(600))
    async with run_chat(
        ScriptedServer("", [f"```py\n{code}```\n", "end"], 20), history_path
    ) as chat:
        await chat.ask("go")
        await chat.until(lambda: "end" in chat.screen())
        (block,) = [block for block in _blocks(chat.app) if block.kind == "fence"]
        assert block.size.height == 600
        assert "row(599)" in chat.screen()
        assert "```" not in chat.screen()
        await chat.pilot.resize_terminal(9, 24)
        await chat.pilot.resize_terminal(16, 24)
        await chat.until(lambda: block.size.height > 1000)


def _blocks(app: Any) -> list[LineBlock]:
    return list(app.chat.query("AnswerView LineBlock").results(LineBlock))


def _kinds(app: Any) -> list[str]:
    return [block.kind for block in _blocks(app)]
