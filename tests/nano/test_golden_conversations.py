"""nano says what it said when it was made: prompts and greedy answers, token for token."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.nano.answering import Answerer, Question
from bench.nano.data.document import encode_document
from bench.nano.make_golden import GOLDEN, cases

CONVERSATIONS = json.loads(GOLDEN.read_bytes())


@pytest.fixture(scope="module")
def answerer(nano_gguf: Path) -> Answerer:
    return Answerer(nano_gguf, n_ctx=4096, n_threads=1, n_together=1)


@pytest.mark.parametrize("golden", CONVERSATIONS, ids=lambda golden: golden["name"])
def test_greedy_answer(answerer: Answerer, golden: dict[str, list[int]]) -> None:
    """Fails where the weights, the conversion or the engine's arithmetic have changed."""
    answerer.read(golden["prompt"][:-1])
    expected = golden["answer"]
    assert answerer.answer([Question(golden["prompt"][-1:], len(expected))]) == [expected]


def test_prompts_are_rendered_as_before() -> None:
    """Fails where rendering has changed under the model's feet; a new nano follows it."""
    rendered = dict(_prompts())
    for golden in CONVERSATIONS:
        assert rendered[golden["name"]] == golden["prompt"], golden["name"]


def _prompts() -> Iterator[tuple[str, list[int]]]:
    for name, document in cases():
        context, (branch,) = encode_document(document)
        yield name, context + branch.prompt
