"""Make docs/chat.svg: a real session of the chat with nano.

    python docs/screenshots.py

It uses the server that answers, or starts one.
"""

import asyncio
import tempfile
from pathlib import Path

from gptoss_local.client import AsyncClient, Client
from gptoss_local.settings import load_settings
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.history import History
from tui.server import ChatServer

_QUESTIONS = ("What is the capital of France?", "What is 123 + 456?")
_SIZE = (100, 28)


async def main() -> None:
    settings = load_settings()
    Client(settings).ensure_running()
    client = AsyncClient(settings)
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "chats.sqlite3")
        app = ChatApp(ChatServer(client), history, Conversation(history, "nano", "high"))
        async with app.run_test(size=_SIZE) as pilot:
            for question in (*_QUESTIONS, "/retry"):
                app.chat.prompt.insert(question)
                await pilot.press("enter")
                await pilot.pause(0.5)
                while app.chat.is_answering:
                    await pilot.pause(0.1)
                await pilot.pause(0.5)
            await pilot.press("ctrl+o")
            await pilot.pause(0.5)
            path = Path(__file__).with_name("chat.svg")
            path.write_text(app.export_screenshot(title="gptoss chat"), encoding="utf-8")
        history.close()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
