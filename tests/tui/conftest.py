"""A real file of chats for every test, and the app on it, with the real server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.client import AsyncClient
from gptoss_local.settings import Settings
from tests.conftest import RunningServer
from tests.tui.running_chat import Chat, OpenChat, run_chat
from tui.history import History


@pytest.fixture
def history_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "chats.sqlite3"


@pytest.fixture
def history(history_path: Path) -> Iterator[History]:
    opened = History(history_path)
    yield opened
    opened.close()


@pytest.fixture
def open_chat(server: RunningServer, history_path: Path) -> OpenChat:
    """Opens the app on the shared server; several times on the same chats if a test wants."""
    port = int(server.url.rpartition(":")[2])

    @asynccontextmanager
    async def opened(chat_id: int | None = None, **options: Any) -> AsyncIterator[Chat]:
        client = AsyncClient(Settings(port=port))
        try:
            async with run_chat(client, history_path, chat_id, **options) as chat:
                yield chat
        finally:
            await client.close()

    return opened
