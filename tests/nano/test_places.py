"""What is missed is told token by token, against what the model itself would have said."""

import json
from pathlib import Path

import pytest

from tests.nano import places
from tests.nano.make_golden import GOLDEN
from tests.nano.places import Count, Miss, Reader, measure


@pytest.fixture(scope="module")
def reader(nano_gguf: Path) -> Reader:
    return Reader(nano_gguf, n_threads=1)


def test_greedy_answers_are_the_likeliest_tokens(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are longer than the rows of logits of one call."""
    monkeypatch.setattr(places, "N_ROWS", 40)
    conversations = json.loads(GOLDEN.read_bytes())
    longest = max(conversations, key=lambda each: len(each["answer"]))
    assert len(longest["answer"]) > 80
    for golden in (longest, conversations[0]):
        assert reader.likeliest(golden["prompt"], golden["answer"]) == golden["answer"]


def test_a_wrong_token_is_a_miss_and_the_next_is_judged_behind_the_right_one(
    reader: Reader,
) -> None:
    answers = list(measure(reader, "rename", 6))
    count = Count()
    for is_turn, misses in answers:
        count.add(is_turn, misses)
        assert len(misses) < len(is_turn) / 10
        assert all(miss.wanted != miss.got for miss in misses)
    assert count.n_answers == 6
    assert count.n_turns + count.n_copied == sum(len(is_turn) for is_turn, _ in answers)
    assert 6 <= count.n_turns < count.n_copied


def test_turns_are_counted_apart() -> None:
    count = Count()
    count.add([True, False, False], [Miss(True, "", "a", "b"), Miss(False, "", "c", "d")])
    count.add([False, False], [])
    assert (count.n_turns, count.n_turns_missed) == (1, 1)
    assert (count.n_copied, count.n_copied_missed) == (4, 1)
    assert (count.n_answers, count.n_answers_missed) == (2, 1)
