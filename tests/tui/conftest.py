"""The app on a real file of chats, with the real server."""

from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.tui.running_chat import OpenChat, opener


@pytest.fixture(autouse=True)
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question takes a key as soon as it is shown; tests of haste set it again."""
    monkeypatch.setattr("tui.widgets.question._HASTE_S", 0.0)


@pytest.fixture
def open_chat(server: RunningServer, history_path: Path) -> OpenChat:
    """Opens the app on the shared server; several times on the same chats if a test wants."""
    return opener(server, history_path)
