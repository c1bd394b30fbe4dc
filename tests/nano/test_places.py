"""What is missed is told token by token, against what the model itself would have said."""

import json
from pathlib import Path

import pytest

from bench.nano import answering
from bench.nano.answering import Answerer
from bench.nano.evaluate import N_CTX
from bench.nano.make_golden import GOLDEN
from bench.nano.places import Miss, describe, measure, misses
from gptoss_local.harmony import load_vocabulary

OTHER = 1000  # a token that none of the answers has


@pytest.fixture(scope="module")
def model(nano_gguf: Path) -> Answerer:
    return Answerer(nano_gguf, n_ctx=N_CTX, n_threads=1, n_together=1)


def test_greedy_answers_are_the_likeliest_tokens(
    model: Answerer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are longer than the rows of logits of one call."""
    monkeypatch.setattr(answering, "N_ROWS", 40)
    conversations = json.loads(GOLDEN.read_bytes())
    longest = max(conversations, key=lambda each: len(each["answer"]))
    assert len(longest["answer"]) > 80
    for golden, n_context in ((longest, 50), (conversations[0], 1)):
        model.read(golden["prompt"][:n_context])
        prompt = golden["prompt"][n_context:]
        assert model.likeliest(prompt, golden["answer"]) == golden["answer"]


def test_a_token_that_is_not_the_likeliest_is_a_miss(model: Answerer) -> None:
    golden = json.loads(GOLDEN.read_bytes())[0]
    at = len(golden["answer"]) // 2
    wanted = [*golden["answer"][:at], OTHER, *golden["answer"][at + 1 :]]
    model.read(golden["prompt"][:-1])
    got = model.likeliest(golden["prompt"][-1:], wanted)
    first, *_ = misses(wanted, got, [i == at for i in range(len(wanted))])
    decode = load_vocabulary().encoding.decode
    assert first.is_turn
    assert first.before.endswith(decode(wanted[at - 3 : at]))
    assert (first.wanted, first.got) == (decode([OTHER]), decode([golden["answer"][at]]))


def test_answers_are_those_that_were_asked_for(model: Answerer) -> None:
    answers = list(measure(model, "rename", 6))
    assert len(answers) == 6
    assert all(any(is_turn) for is_turn, _ in answers)
    assert all(len(missed) < len(is_turn) / 10 for is_turn, missed in answers)


def test_turns_are_counted_apart() -> None:
    missed = [Miss(True, "", "a", "b"), Miss(False, "", "c", "d")]
    found = describe([([True, False, False], missed), ([False, True], [])])
    assert found == "1 of 2 turns missed, 1 of 3 other tokens; 1 of 2 answers miss any"
