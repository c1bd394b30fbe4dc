"""A real file of chats for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.history import History


@pytest.fixture
def history_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "chats.sqlite3"


@pytest.fixture
def history(history_path: Path) -> Iterator[History]:
    opened = History(history_path)
    yield opened
    opened.close()
