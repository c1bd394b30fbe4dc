"""A real file of chats for every test, and the app on it, with the real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.tui.running_chat import OpenChat, opener
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
    return opener(server, history_path)


@pytest.fixture
def open_own_chat(own_server: RunningServer, history_path: Path) -> OpenChat:
    """Opens the app on a server that the test may break."""
    return opener(own_server, history_path)
