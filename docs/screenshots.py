"""Make the pictures of the chat in docs/: real sessions with nano.

    python docs/screenshots.py [FOLDER [THEME]]

It uses the server that answers, or starts one. With a theme all pictures have it, to look at them.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from gptoss_local.client import AsyncClient, Client
from gptoss_local.settings import Settings, ToolCommand, load_settings
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.history import History
from tui.server import ChatServer
from tui.tools import Toolbox

_WEATHER = ToolCommand(
    command=("echo", '{"temperature": 21, "description": "sunny"}'),
    description="Gets the current weather in the provided location.",
    parameters={
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The name of the city"}},
        "required": ["location"],
    },
)
_LARGE, _WIDE, _SMALL = (120, 40), (120, 20), (80, 24)
_DARK, _LIGHT = "textual-dark", "textual-light"


class Session:
    """A chat that a scene drives."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def enter(self, text: str) -> None:
        self.app.chat.prompt.insert(text)
        await self.pilot.press("enter")
        await self.pilot.pause(0.5)

    async def ask(self, text: str) -> None:
        await self.enter(text)
        await self.answered()

    async def answered(self) -> None:
        await self.pilot.pause(0.5)
        while self.app.chat.is_answering:
            await self.pilot.pause(0.1)
        await self.pilot.pause(0.8)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause(0.7)


async def empty(_session: Session) -> None:
    """What one sees first."""


async def talk(session: Session) -> None:
    """Questions, versions, reasoning in full, and where the time went."""
    await session.ask("What is the capital of France?")
    await session.ask("What is 123 + 456?")
    await session.press("f5")
    await session.answered()
    await session.press("f8", "ctrl+o", "ctrl+o")


async def approve(session: Session) -> None:
    """A call of a tool waits for a word."""
    await session.enter("What is the weather in Tokyo?")
    while not session.app.chat.dialogue.note:
        await session.pilot.pause(0.2)
    await session.pilot.pause(1)


async def tool(session: Session) -> None:
    """A call that was allowed, its arguments and result open."""
    await approve(session)
    await session.press("y")
    await session.answered()
    views = session.app.chat.transcript.views()
    views[1].focus()
    await session.press("space")
    views[2].focus()
    await session.press("space", "escape")


async def inspect(session: Session) -> None:
    """Harmony's messages."""
    await session.ask("What is the capital of France?")
    await session.ask("What is 123 + 456?")
    await session.press("f9")


async def compare(session: Session) -> None:
    """Two efforts beside each other."""
    await session.ask("What is 123 + 456?")
    await session.press("f5")
    await session.answered()
    await session.enter("/compare")


async def failed(session: Session) -> None:
    """A prompt that does not fit."""
    session.app.chat.prompt.fill("word " * 40_000)
    await session.press("enter")
    await session.pilot.pause(4)


async def wait(session: Session) -> None:
    """A message that waits while an answer streams."""
    await session.enter("Count from 1 to 300.")
    await session.enter("What is the capital of France?")
    await session.pilot.pause(1.5)


Scene = Callable[[Session], Awaitable[None]]
_PICTURES: dict[str, tuple[Scene, tuple[int, int], str]] = {
    "chat": (talk, _LARGE, _DARK),
    "chat-light": (tool, _SMALL, _LIGHT),
    "chat-harmony": (inspect, _LARGE, _DARK),
    "chat-compare": (compare, _WIDE, _DARK),
}
_TO_LOOK_AT: dict[str, tuple[Scene, tuple[int, int], str]] = {
    "empty": (empty, _SMALL, _DARK),
    "approve": (approve, _SMALL, _DARK),
    "failed": (failed, _SMALL, _DARK),
    "wait": (wait, _SMALL, _DARK),
}


async def main(folder: Path, theme: str) -> None:
    settings = load_settings()
    Client(settings).ensure_running()
    for name, picture in (_PICTURES | (_TO_LOOK_AT if theme else {})).items():
        scene, size, own_theme = picture
        text = await photograph(settings, scene, size, theme or own_theme)
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


async def photograph(settings: Settings, scene: Scene, size: tuple[int, int], theme: str) -> str:
    """Play a scene and return what is on the screen then, as SVG."""
    client = AsyncClient(settings)
    with tempfile.TemporaryDirectory() as chats:
        history = History(Path(chats) / "chats.sqlite3")
        conversation = Conversation(history, "nano", "medium")
        conversation.set_option("temperature", 0)
        tools = {"get_current_weather": _WEATHER} if scene in (tool, approve) else {}
        toolbox = Toolbox(tools, Path(chats))
        app = ChatApp(ChatServer(client), history, conversation, toolbox, theme=theme)
        async with app.run_test(size=size) as pilot:
            await pilot.pause(0.5)
            await scene(Session(app, pilot))
            text = app.export_screenshot(title="gptoss chat")
        history.close()
    await client.close()
    return text


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(
        main(
            Path(arguments[0]) if arguments else Path(__file__).parent,
            arguments[1] if len(arguments) > 1 else "",
        )
    )
