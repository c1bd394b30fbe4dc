"""The pictures of the chat and of commands can be made again, and are up to date."""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import terminal_pictures
from docs.screenshots import PICTURES, Session, photograph, run_script
from tests.conftest import RunningServer

_AIRY = ("chat-start", "chat-menu", "chat-list", "chat-wide")
_MEMORY = {"RAM,", "no", "GPU", "VRAM", "GiB"}
DOCS = Path(__file__).parents[2] / "docs"


async def test_the_first_picture(empty_home: Path) -> None:
    with run_script(empty_home) as server:
        text = await photograph(server, *PICTURES["chat"])
    for words in ("python", "defaultdict", "Hash", "everything"):
        assert words in text


@pytest.mark.parametrize("name", _AIRY)
async def test_pictures_are_those_of_today(scripted: RunningServer, name: str) -> None:
    """But for figures, and the memory of the machine."""
    text = await photograph(scripted, *PICTURES[name])
    words = set(_words((DOCS / f"{name}.svg").read_text(encoding="utf-8"))) - _MEMORY
    words = {word for word in words if not re.search(r"\d|%", word)}
    assert len(words) > 10
    assert words - set(_words(text)) == set()


async def test_no_cursor_splits_a_word(scripted: RunningServer) -> None:
    """Half a period of its blinking apart."""
    for pause_s in (0, 0.5):

        async def empty(session: Session, pause_s: float = pause_s) -> None:
            await session.pilot.pause(pause_s)

        text = await photograph(scripted, empty, *PICTURES["chat-start"][1:])
        assert "Message," in _words(text)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with run_script(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_there_and_full(name: str) -> None:
    text = (DOCS / f"{name}.svg").read_text(encoding="utf-8")
    rows = {float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)"', text)}
    assert len(rows) > (0.1 if name in _AIRY else 0.7) * PICTURES[name][1][1]


@pytest.mark.skipif(os.name != "posix", reason="no pty on Windows")
def test_the_picture_of_a_plan_is_that_of_today(empty_home: Path) -> None:
    """It is of an imagined machine, so it is the same everywhere."""
    environment = {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": "1"}
    text = terminal_pictures.photograph(environment, terminal_pictures.PICTURES["plan"])
    assert _words(text) == _words((DOCS / "plan.svg").read_text(encoding="utf-8"))
    assert "answers" in _words(text)


@pytest.mark.parametrize("name", terminal_pictures.PICTURES)
def test_pictures_of_commands_show_the_commands(name: str) -> None:
    words = _words((DOCS / f"{name}.svg").read_text(encoding="utf-8"))
    assert words.count("gptoss") > len(terminal_pictures.PICTURES[name])
    assert "loading" not in words


def _words(svg: str) -> list[str]:
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    return " ".join(html.unescape(text) for text in texts).split()
