"""The terminal: its bytes become keys and text, equal frames are not written, texts are copied."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from textual.app import App

from gptoss_local.talk.history.plain import plain_text
from tui.app import ChatApp, InputDecoder, copy_natively, native_command

pytestmark = pytest.mark.quick

START, END = b"\x1b[200~", b"\x1b[201~"
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"


def decoded(data: bytes, size: int) -> str:
    decoder = InputDecoder()
    pieces = [data[n : n + size] for n in range(0, len(data), size)]
    return "".join(map(decoder.decode, pieces)) + decoder.decode(b"", True)


@given(st.binary(), st.integers(1, 9))
def test_any_bytes_are_the_same_text_however_they_are_cut(data: bytes, size: int) -> None:
    assert decoded(data, size) == decoded(data, max(1, len(data)))


def test_keys_stay_as_they_are() -> None:
    keys = "\x1b\x1b[A\x1bOP\x07\x1b[<0;3;4M é你"
    for size in range(1, 30):
        assert decoded(keys.encode(), size) == keys
    assert InputDecoder().decode(b"\x1b") == "\x1b"  # Esc waits for nothing


@given(st.text(), st.text(), st.integers(1, 20))
@example("\x1b[3", "", 1)
@example("a\r\nb\rc\x07\x1b", "\x1b", 1)
@example("\x1b[201", "x", 3)
def test_pastes_are_text(pasted: str, after: str, size: int) -> None:
    if END.decode() in pasted or START.decode() in after:
        return
    data = START + pasted.encode(errors="replace") + END + after.encode(errors="replace")
    shown = decoded(data, size)
    start, found, rest = shown.partition(START.decode())
    inside, end, behind = rest.partition(END.decode())
    assert (start, bool(found), bool(end)) == ("", True, True)
    assert behind == after.encode(errors="replace").decode()
    assert inside == plain_text(inside)


def test_colours_of_a_paste_are_dropped_as_a_whole() -> None:
    data = START + b"\x1b[31mred\x1b[0m\r\n\tend\x07" + END + b"\r"
    assert decoded(data, 1000) == f"{START.decode()}red\n\tend{END.decode()}\r"


class Terminal:
    """Has rows; a frame such as `3=x` paints some of them."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.n_frames = 0

    def write(self, data: str) -> None:
        if data not in (BEGIN_FRAME, END_FRAME):
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
        for data in (BEGIN_FRAME, rng.choice(frames), END_FRAME):
            plain.write(data)
            driver.write(data)
        assert driver.rows == plain.rows
    assert driver.n_frames < plain.n_frames


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An X11 desktop with an `xclip` that writes to the file that is returned."""
    program = tmp_path / "xclip"
    program.write_text(f'#!/bin/sh\ncat > "{tmp_path}/clipboard"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("WAYLAND_DISPLAY", "SSH_CONNECTION", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "clipboard"


@pytest.mark.skipif(sys.platform != "linux", reason="xclip is X11's")
def test_a_text_reaches_the_clipboard(desktop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over SSH, not without a desktop, and not if the program fails."""
    with monkeypatch.context() as patched:
        patched.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
        assert not copy_natively("x")
    with monkeypatch.context() as patched:
        patched.delenv("DISPLAY")
        assert not copy_natively("x")
    assert not desktop.exists()
    assert copy_natively("Grüße\n🙂")
    assert desktop.read_text(encoding="utf-8") == "Grüße\n🙂"
    (desktop.parent / "xclip").write_text("#!/bin/sh\nexit 1\n")
    assert not copy_natively("x")


def test_clipboards_of_other_systems() -> None:
    for platform, program in (("win32", "clip"), ("darwin", "pbcopy")):
        assert native_command({}, platform) in ([], [program])  # [] where it is not installed
        assert native_command({"SSH_CONNECTION": "x"}, platform) == []
