"""Bytes of the terminal: whatever they are, however they are cut, they are text and keys."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gptoss_local.talk.history.plain import plain_text
from tui.app import InputDecoder

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
