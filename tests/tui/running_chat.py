"""The chat against a real server on nano, driven by Textual's pilot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.strip import Strip

from gptoss_local.api.client import AsyncClient
from gptoss_local.base.settings import Settings, ToolCommand
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Toolbox, ToolSources
from gptoss_local.talk.tools.work import Work
from tests.conftest import PATIENCE_S, RunningServer
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer
from tui.widgets.turn_view import TurnView

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."


class Chat:
    """A running app, with questions that tests ask."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.told: list[str] = []
        """All notices, also those that are gone from the screen."""
        notify = app.notify

        def tell(message: str, **options: Any) -> None:
            self.told.append(message)
            notify(message, **options)

        app.notify = tell  # type: ignore[assignment, method-assign]

    async def type(self, text: str) -> None:
        self.app.chat.prompt.insert(text)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        await self.type(text)
        await self.press("enter")

    async def ask(self, text: str) -> str:
        """Send a message and wait for its answer."""
        await self.enter(text)
        return await self.answered()

    async def answered(self) -> str:
        await self.until(lambda: not self.app.chat.is_answering)
        await self.until(lambda: self.turns()[-1].state != "streaming")
        return self.turns()[-1].content

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(int(PATIENCE_S / 0.05)):
            if condition():
                return
            await self.pilot.pause(0.05)
        raise AssertionError(f"timed out; on the screen:\n{self.screen()}")

    async def shows(self, *texts: str) -> None:
        """Wait until all of it is on the screen."""
        await self.until(lambda: all(text in self.screen() for text in texts))

    async def tells(self, text: str) -> None:
        """Wait for a notice."""
        await self.until(lambda: text in self.notices())

    async def asked(self) -> None:
        """Wait for a question."""
        await self.until(lambda: self.app.chat.question.display)

    async def answer(self, label: str, *, sure: bool = False) -> None:
        """Choose an answer of the open question; twice if that is asked for."""
        await self.asked()
        answers = self.app.chat.question.answers
        n = next(n for n, o in enumerate(answers.options) if str(o.prompt).startswith(label))
        n -= answers.highlighted or 0
        await self.press(*["down" if n > 0 else "up"] * abs(n), "enter")
        if sure:
            await self.shows("Are you sure?")
            await self.press("down", "enter")

    def turns(self) -> Any:
        return self.app.chat.conversation.turns

    def views(self) -> list[TurnView]:
        return self.app.chat.transcript.views()

    def notices(self) -> str:
        """The app's notices."""
        return "\n".join(self.told)

    def screen(self) -> str:
        """The text on the screen, row by row."""
        return "\n".join(strip.text.rstrip() for strip in self.strips())

    def links(self) -> dict[str, str]:
        """The text on the screen that is a link, with its address."""
        styles = [(piece.text, piece.style) for strip in self.strips() for piece in strip]
        return {text: style.link for text, style in styles if style and style.link}

    def strips(self) -> list[Strip]:
        return self.app.screen._compositor.render_strips()


OpenChat = Callable[..., AbstractAsyncContextManager[Chat]]


@asynccontextmanager
async def run_chat(
    source: Any,
    path: Path,
    chat_id: int | None = None,
    size: tuple[int, int] = (80, 24),
    tools: dict[str, ToolCommand] | None = None,
    folder: Path | None = None,
    notifications: bool = False,
    make_toolbox: Callable[[], Toolbox] | None = None,
    work: Work | None = None,
    **options: Any,
) -> AsyncIterator[Chat]:
    history = History(path)
    conversation = Conversation(history, "nano", "medium")
    if chat_id is not None:
        conversation.open(chat_id)
    sources = ToolSources(Settings(tools=tools or {}), folder or path.parent)
    make = make_toolbox or partial(sources.toolbox, work)
    app = ChatApp(ChatServer(source), history, conversation, make, **options)
    is_over = False
    try:
        async with app.run_test(size=size, notifications=notifications) as pilot:
            await pilot.pause()
            yield Chat(app, pilot)
            is_over = True
    except asyncio.CancelledError:  # of a widget that Textual cancels as it ends
        if not is_over:
            raise
    finally:
        await app.close()
        await sources.close()
        history.close()


def opener(server: RunningServer, path: Path) -> OpenChat:
    """Returns a function that opens the app on a server and a file of chats, several times if
    wanted.
    """
    port = int(server.url.rpartition(":")[2])

    @asynccontextmanager
    async def opened(chat_id: int | None = None, **options: Any) -> AsyncIterator[Chat]:
        client = AsyncClient(Settings(port=port, home=server.home))
        try:
            async with run_chat(client, path, chat_id, **options) as chat:
                yield chat
        finally:
            await client.close()

    return opened
