"""Ollama's keep_alive and think in all their spellings."""

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import parse_keep_alive
from gptoss_local.server.dialects.ollama.options import parse_think


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (300, 300),
        (-1, -1),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("0s", 0),
        ("300", 300),
        ("-1", -1),
        ("-5m", -300),
        ("1000000h", -1),
    ],
)
def test_keep_alive(value: float | str, seconds: float) -> None:
    assert parse_keep_alive(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", [True, "", "m", "5 m", "5x", "five minutes", "--1s", "nan", "inf"]
)
def test_bad_keep_alive(value: bool | str) -> None:
    with pytest.raises(UsageError, match=r"keep_alive|duration"):
        parse_keep_alive(value)


@pytest.mark.parametrize(
    ("think", "expected"),
    [
        (None, ("medium", True)),
        (True, ("medium", True)),
        (False, ("low", False)),
        ("low", ("low", True)),
        ("high", ("high", True)),
        ("max", ("high", True)),
    ],
)
def test_think(think: object, expected: tuple[str, bool]) -> None:
    assert parse_think(think) == expected


@pytest.mark.parametrize("think", ["ultra", "", 1, 0.5, [], {}])
def test_bad_think(think: object) -> None:
    with pytest.raises(UsageError, match="think"):
        parse_think(think)
