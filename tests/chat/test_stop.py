"""Stop strings across piece borders."""

import pytest

from gptoss_local.harmony.reader import StopFilter

pytestmark = pytest.mark.quick


def feed_all(stop: tuple[str, ...], pieces: list[str]) -> tuple[str, bool]:
    stop_filter = StopFilter(stop)
    text = ""
    for piece in pieces:
        text += stop_filter.feed(piece)
        if stop_filter.is_stopped:
            break
    return text + stop_filter.flush(), stop_filter.is_stopped


@pytest.mark.parametrize(
    ("stop", "text", "expected"),
    [
        ((), "abc", ("abc", False)),
        (("",), "abc", ("abc", False)),
        (("END",), "one END two", ("one ", True)),
        (("b", "a"), "xab", ("x", True)),
        (("aab",), "aaab", ("a", True)),
        (("END",), "only EN", ("only EN", False)),
    ],
)
def test_same_result_for_every_split(
    stop: tuple[str, ...], text: str, expected: tuple[str, bool]
) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert feed_all(stop, pieces) == expected


def test_nothing_is_held_that_cannot_begin_a_stop() -> None:
    stop_filter = StopFilter(("END",))
    assert stop_filter.feed("hello") == "hello"
    assert stop_filter.feed(" E") == " "
    assert stop_filter.feed("x") == "Ex"
