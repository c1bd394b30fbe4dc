"""What a schema fixes character by character, and that too much of it is refused."""

import time
from typing import Any

import pytest

from gptoss_local.errors import UsageError
from gptoss_local.harmony.fixed_text import language_length
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.message import JsonFormat
from gptoss_local.harmony.pattern import read_pattern


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("", 0),
        ("abc", 3),
        ("a{30}b", 31),
        ("(ab{10}){20}", 220),
        ("(a{1000}){1000}", 1_000_000),
        ("(?:a|bc){5}", 10),
        ("a*b+c?d{0,9}e{2,}", 3),
        (r"\d{4}-\{{3}", 4),
        (r"\p{L}x\x{41}", 2),
        (r"[0-9a-f\]]{5000}-[\]a]{3}[b]", 2),
        ("^(?=.*[0-9])a{7}$", 7),
    ],
)
def test_length_of_a_pattern(pattern: str, length: int) -> None:
    assert language_length(read_pattern(pattern)) == length


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a{1000}){1000}$"},
        {"const": "ab" * 50_000},
        {"enum": ["x" * 30_000]},
        {"patternProperties": {"^(a{300}){300}$": True}},
        {"properties": {"a": {"pattern": "a{15000}"}, "b": {"const": "b" * 15_000}}},
    ],
)
def test_too_much_fixed_text_is_refused_at_once(schema: dict[str, Any]) -> None:
    start_s = time.monotonic()
    with pytest.raises(UsageError, match="fixed text"):
        compile_grammar(JsonFormat(schema))
    assert time.monotonic() - start_s < 1


def test_long_answers_of_free_choice_are_not_refused() -> None:
    for schema in (
        {"type": "string", "maxLength": 100_000},
        {"type": "string", "pattern": "^[0-9a-f]{90000}$"},
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T(\d{2}:){2}\d{2}$"},
        {"enum": [f"value {i}" for i in range(5000)]},
    ):
        assert compile_grammar(JsonFormat(schema))
