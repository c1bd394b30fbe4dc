"""The app on a real file of chats, with the real server."""

from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.tui.running_chat import OpenChat, opener


@pytest.fixture
def open_chat(server: RunningServer, history_path: Path) -> OpenChat:
    """Opens the app on the shared server; several times on the same chats if a test wants."""
    return opener(server, history_path)


@pytest.fixture
def open_own_chat(own_server: RunningServer, history_path: Path) -> OpenChat:
    """Opens the app on a server that the test may break."""
    return opener(own_server, history_path)
