"""The chat in Windows' console, which Wine draws in a terminal of Linux.

Wine counts a sequence of colors as text and breaks lines there, so a screen is read without breaks.
"""

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.conftest import wait_until
from tests.tui.running_chat import FRANCE, PARIS
from tests.tui.test_tmux import Tmux
from tests.windows.conftest import ON_WINDOWS, Pc

pytestmark = [
    *ON_WINDOWS,
    pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed"),
]


@pytest.fixture
def console(pc: Pc) -> Iterator[Tmux]:
    pc.gptoss("load", "nano")
    tmux = Tmux((160, 40))
    command = "wine gptoss chat nano --effort low; echo ended with $?; sleep 600"
    tmux.start(["sh", "-c", command], pc.environment | {"TERM": "xterm-256color"})
    yield tmux
    tmux.close()


def wait_for(console: Tmux, text: str) -> None:
    wanted = _squeezed(text)
    try:
        wait_until(lambda: wanted in _squeezed(console.screen()))
    except AssertionError as error:
        raise AssertionError(console.screen()) from error


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_a_question_and_its_answer(console: Tmux, pc: Pc) -> None:
    wait_for(console, "Enter sends")
    console.enter(FRANCE)
    wait_for(console, PARIS.removesuffix(" Paris."))  # its last word may be drawn over
    wait_until(lambda: FRANCE in pc.gptoss("chats", "-q", "Paris"))
    console.enter("/quit")
    wait_for(console, "Continue with: gptoss chat --chat")
    wait_for(console, "ended with 0")
