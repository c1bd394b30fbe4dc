"""Speculation changes how many tokens a step yields, and nothing else.

The last bits of logits depend on how many rows a step computes: one, 2 to 63, or more. So runs that
must agree to the last token all draft at least one token in every step: a wrong one in the
reference, and random ones, right for a random length, in the run under test.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptoss_local.base.types import SamplingParams, StepTimes, Usage
from gptoss_local.engine.llama import Model
from gptoss_local.engine.protocol import Finished, Generate, Tokens
from gptoss_local.engine.worker.costs import StepCosts
from gptoss_local.engine.worker.drafts import N_GRAM, Drafter, Speculation
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sequence import Sequence
from gptoss_local.harmony import Vocabulary
from tests.engine.run import GREEDY, make_context, request

N_DRAFT_MAX = 40
WRONG = 199_000  # a token that nano never says


class Speculating:
    """An engine with drafts made by the test: `draft(answer so far)`."""

    def __init__(self, model: Model) -> None:
        self.context = make_context(model, n_seq_max=3, n_outputs_max=3 + N_DRAFT_MAX)
        self.engine = Engine(self.context)

    def run(self, requests: list[Generate]) -> tuple[dict[int, list[int]], dict[int, Usage]]:
        answers: dict[int, list[int]] = {request.seq_id: [] for request in requests}
        usages = {}
        self.engine._cache.clear()  # a prompt that is found is decoded in narrower steps
        for asked in requests:
            assert self.engine.add_request(asked) == []
        while self.engine.has_work:
            for event in self.engine.step():
                if isinstance(event, Tokens):
                    answers[event.seq_id] += event.tokens
                else:
                    assert isinstance(event, Finished)
                    usages[event.seq_id] = event.usage
            assert self.engine.check() == []
        return answers, usages


@pytest.fixture(scope="module")
def speculating(model: Model) -> Iterator[Speculating]:
    engine = Speculating(model)
    yield engine
    engine.context.close()


class Oracle(Drafter):
    """Drafts on demand: the answer as it is known, wrong from a random place on."""

    known: dict[tuple[int, ...], list[int]]
    rng: random.Random | None

    has_guess = True

    def look(self) -> int:
        return N_DRAFT_MAX

    def take(self, n_tokens: int) -> list[int]:
        draft = [WRONG]
        tokens = self._index.tokens
        for prompt, answer in self.known.items():
            if self.rng is not None and tuple(tokens[: len(prompt)]) == prompt:
                rest = answer[len(tokens) - len(prompt) :]
                n_right = self.rng.choice((0, 1, 2, 5, 12, 30))
                draft = [*rest[:n_right], WRONG, *rest[n_right + 1 :]]
        return draft[:n_tokens]


@contextmanager
def oracle(
    known: dict[tuple[int, ...], list[int]], rng: random.Random | None = None
) -> Iterator[None]:
    """Every step has drafts: of the known answers, or wrong ones without `rng`."""
    Oracle.known, Oracle.rng = known, rng
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gptoss_local.engine.worker.drafts.Drafter", Oracle)
        patch.setattr(StepCosts, "draft_length", lambda self, n, p, n_max: min(n_max, 20))
        patch.setattr(Speculation, "observe", lambda self, rows, step_s: None)
        yield


def ask(
    seq_id: int, prompt: list[int], sampling: SamplingParams = GREEDY, n_max: int = 400
) -> Generate:
    return request(seq_id, prompt, sampling, max_tokens=n_max)


def chat(vocabulary: Vocabulary, text: str) -> list[int]:
    tagged = f"<|start|>user<|message|>{text}<|end|><|start|>assistant"
    return vocabulary.encoding.encode(tagged, allowed_special="all")


TEXTS = ("Count from 1 to 40.", "What is the capital of France?", "hi", "Say a list of fruits.")


@settings(max_examples=min(100, settings.default.max_examples // 3))  # type: ignore[union-attr]
@given(
    texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3),
    temperature=st.sampled_from((0.0, 0.7, 1.0)),
    n_max=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_drafts_right_or_wrong_change_no_token(
    speculating: Speculating, vocabulary: Vocabulary, texts: list[str], temperature: float,
    n_max: int, seed: int,
) -> None:  # fmt: skip
    requests = [
        ask(i, [i + 1, *chat(vocabulary, text)], SamplingParams(temperature, seed=seed), n_max)
        for i, text in enumerate(texts)
    ]
    with oracle({}):
        expected, _ = speculating.run(requests)
    with oracle({tuple(r.prompt): expected[r.seq_id] for r in requests}, random.Random(seed)):
        got, usages = speculating.run(requests)
    assert got == expected
    for i, usage in usages.items():
        assert usage.n_generated == len(expected[i])
        assert usage.n_accepted < usage.n_generated


def test_repeated_text_is_drafted(
    speculating: Speculating, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No oracle, on a machine where a wide step costs half as much again as a narrow one."""
    costs = StepCosts()
    costs.know(StepTimes(((1, 0.002), (2, 0.003), (32, 0.003)), switch_s=0.0))
    monkeypatch.setattr(speculating.engine._speculation, "costs", costs)
    monkeypatch.setattr(Speculation, "observe", lambda self, rows, step_s: None)
    count = ask(0, chat(vocabulary, "Count from 2 to 50."))
    plain, usages = speculating.run([msgspec.structs.replace(count, drafts=False)])
    assert usages[0].n_drafted == 0
    first, _ = speculating.run([count])
    again, usages = speculating.run([count])
    assert again == first == plain
    assert usages[0].n_generated > 100
    assert usages[0].n_accepted > 0.7 * usages[0].n_generated


def test_drafts_come_from_an_owners_answers() -> None:
    speculation = Speculation(1000, N_DRAFT_MAX, StepCosts())

    def sequence(salt: bytes, prompt: list[int]) -> Sequence:
        return Sequence(request(1, prompt, salt=salt), 0, cast(Any, None))

    answered = sequence(b"one", [1])
    answered.tokens.extend(range(100))
    speculation.finish(answered)
    for salt, n_found in ((b"two", 0), (b"", 0), (b"one", 100 - 50 - N_GRAM)):
        asking = sequence(salt, [5000, *range(50, 50 + N_GRAM)])
        speculation.start(asking)
        assert speculation.drafters[asking].look() == n_found
