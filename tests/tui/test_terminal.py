"""The terminal: its bytes become keys and text, nothing is sent to it twice, texts are copied."""

import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.geometry import Region, Size

from gptoss_local.talk.history.plain import plain_text
from tui.app import InputDecoder, Painter, copy_natively, guard_driver, native_command

pytestmark = pytest.mark.quick

START, END = b"\x1b[200~", b"\x1b[201~"


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


def test_esc_before_a_sign_is_alt_at_once() -> None:
    guard_driver()
    events = XTermParser().feed("a\x1b\rb\x1b.\x1b5\x1br\x1bR\x1b \x1b[A\x1bf\x1bOP")
    assert [event.key for event in events if isinstance(event, Key)] == [
        *("a", "alt+enter", "b", "alt+full_stop", "alt+5", "alt+r", "alt+shift+r", "alt+space"),
        *("up", "ctrl+right", "f1"),
    ]


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
    """Obeys what frames consist of; a wide character takes the cell after it too."""

    def __init__(self) -> None:
        self.rows = [[" "] * SIZE.width for _ in range(SIZE.height)]
        self.y = self.x = self.top = 0
        self.bottom = SIZE.height

    def write(self, data: str) -> None:
        for y, x, region, text in SEQUENCE.findall(re.sub(r"\x1b\[[\d;]*m", "", data)):
            if region:
                self.top, self.bottom = int(y or 1) - 1, int(x or SIZE.height)
            elif not text:
                self.y, self.x = int(y) - 1, int(x) - 1
            elif text != "\n":
                row, end = self.rows[self.y], self.x + cell_len(text)
                if not row[self.x]:
                    row[self.x - 1] = " "  # of a wide character, the other half
                if end < len(row) and not row[end]:
                    row[end] = " "
                row[self.x : end] = [text, ""][: end - self.x]
                self.x = end
            elif self.y == self.bottom - 1:
                del self.rows[self.top]
                self.rows.insert(self.y, [" "] * SIZE.width)
            else:
                self.y += 1


SIZE, SCROLLS = Size(20, 12), Region(2, 1, 18, 8)
SEQUENCE = re.compile(r"\x1b\[(\d*);?(\d*)(?:H|(r))|([^\x1b])")


def frame_of(rows: list[str], first: int, chance: random.Random) -> str:
    """All rows, or a piece of one of them."""
    if chance.random() < 0.7:
        return "\n".join(f"\x1b[{y};1H\x1b[1m{row}\x1b[0m" for y, row in enumerate(rows, 1))
    y, start, length = (chance.randrange(n) for n in (SIZE.height, 10, 8))
    row, cursor = rows[y], f"\x1b[{first % 9 + 1};1H"
    return f"\x1b[{y + 1};{cell_len(row[:start]) + 1}H{row[start : start + length]}{cursor}"


@pytest.mark.parametrize("seed", range(20))
def test_the_screen_is_the_same_with_fewer_bytes(seed: int) -> None:
    chance, plain, less, painter = random.Random(seed), Terminal(), Terminal(), Painter()
    lines = ["".join(chance.choices("ab 好", k=10)) for _ in range(400)]
    first = n_plain = n_less = 0
    for n in range(100):
        first += chance.choice([0, 0, 1, 1, 2, 5, -1])
        size = SIZE if n % 30 else Size(SIZE.width, n)  # another one, and back
        seen = [str(n), *lines[first + 10 :][: SCROLLS.height], "—", "input", f"{n // 9}"]
        rows = [f"{line}{' ' * (SIZE.width - cell_len(line))}" for line in seen]
        frame = frame_of(rows, first, chance)
        sent = painter.paint(frame, size, SCROLLS)
        plain.write(frame)
        less.write(sent)
        assert less.rows == plain.rows, n
        n_plain, n_less = n_plain + len(frame), n_less + len(sent)
    assert n_less < 0.6 * n_plain


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
