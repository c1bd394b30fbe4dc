"""A frame that equals the one before it is not written, and the screen is the same without it."""

import random
from typing import Any

import pytest
from textual.app import App

from tui.app import ChatApp

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"


class Terminal:
    """Has rows; a frame such as `3=x` paints some of them."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.n_frames = 0

    def write(self, data: str) -> None:
        if data not in (BEGIN, END):
            self.rows.update(part.split("=") for part in data.split(";"))  # type: ignore[arg-type]
            self.n_frames += 1


@pytest.mark.parametrize("seed", range(3))
def test_the_screen_is_the_same_with_fewer_frames(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(App, "get_driver_class", lambda _app: Terminal)
    rng, plain = random.Random(seed), Terminal()
    driver: Any = ChatApp.get_driver_class(object.__new__(ChatApp))()
    frames = ["1=a;2=b", "1=b", "2=b;3=c", "1=a;2=b;3=d"]
    for _ in range(200):
        for data in (BEGIN, rng.choice(frames), END):
            plain.write(data)
            driver.write(data)
        assert driver.rows == plain.rows
    assert driver.n_frames < plain.n_frames
