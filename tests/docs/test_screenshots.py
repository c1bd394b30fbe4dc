"""The pictures of the chat and of commands can be made again, and are up to date."""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import terminal_pictures
from docs.screenshots import PICTURES, photograph, run_script
from tests.conftest import RunningServer, give_nano

_AIRY = ("chat-start", "chat-menu", "chat-list", "chat-wide")
_MEMORY = {"RAM,", "no", "GPU", "VRAM", "GiB"}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", _AIRY)
async def test_pictures_are_those_of_today(scripted: RunningServer, name: str) -> None:
    """But for figures, and the memory of the machine."""
    text = await photograph(scripted, *PICTURES[name])
    words = set(_words((DOCS / f"{name}.svg").read_text(encoding="utf-8"))) - _MEMORY
    words = {word for word in words if not re.search(r"\d|%", word)}
    assert len(words) > 10
    assert words - set(_words(text)) == set()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory, nano_home: Path) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("home")
    give_nano(nano_home, home / "cache")
    with run_script(home) as server:
        yield server


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
