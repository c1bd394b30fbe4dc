"""Log-probabilities and penalties in the running engine, against a context of its own."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.worker.sampling.draw import logprob
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony.vocabulary import RETURN
from tests.engine.run import Prompt, Run, make_context

Logits = npt.NDArray[np.float64]
ROUNDING = 0.4
"""The effect of company and of the order of cells on a logit of nano; see docs/structure.md."""
COUNT = "Count from 1 to 12."


def own_context(model: Model, n_ctx: int = 2048) -> Context:
    sizes = {"n_seq_max": 3, "n_batch": 128, "n_outputs_max": 12, "n_outputs_max_per_seq": 10}
    return make_context(model, n_ctx=n_ctx, **sizes)


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = own_context(model)
    yield context
    context.close()


def alone(model: Model, question: list[int], answer: list[int]) -> Iterator[Logits]:
    """Yield the logits behind the question and behind each token of the answer but the last."""
    context = own_context(model)
    context.decode(question, position=0)
    for i, token in enumerate(answer):
        yield context.logits(-1).astype(np.float64)
        context.decode([token], position=len(question) + i)
    context.close()


def test_values_are_the_log_softmax() -> None:
    generator = np.random.default_rng(1)
    for n_vocab in (32, 201_088):
        logits = generator.normal(0, 9, n_vocab).astype(np.float32)
        exact = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
        best = np.argsort(-logits, kind="stable")[:20].tolist()
        told = logprob(logits, 7, 20)
        assert told.logprob == pytest.approx(exact[7], abs=1e-5)
        assert [token for token, _ in told.top] == best
        assert [value for _, value in told.top] == pytest.approx(exact[best], abs=1e-5)
    peaked = np.full(50, -40, np.float32)
    peaked[3] = 60
    assert logprob(peaked, 3, 2).top == [(3, 0.0), (0, -100.0)]


@pytest.mark.parametrize("backend_sampling", [False, True])
def test_equal_to_a_context_of_its_own(
    model: Model, context: Context, prompt: Prompt, backend_sampling: bool
) -> None:
    """Next to plain requests, which do not change, and where the device samples those."""
    run = Run(context, backend_sampling=backend_sampling)
    question, other = prompt(COUNT), prompt("What is the capital of France?")
    run.add(1, question, n_logprobs=5)
    run.add(2, other)
    run.finish()
    tokens, logprobs = run.tokens[1], run.logprobs[1]
    assert len(tokens) == len(logprobs) > 20
    assert run.logprobs[2] == []
    assert run.answer(3, other) == run.tokens[2]
    for logits, token, told in zip(alone(model, question, tokens), tokens, logprobs, strict=True):
        exact = logits - np.logaddexp.reduce(logits)
        assert told.logprob == pytest.approx(exact[token], abs=ROUNDING)
        for candidate, value in told.top:
            assert value == pytest.approx(exact[candidate], abs=2 * ROUNDING)
        assert told.top[0] == (token, told.logprob)  # greedy
        assert [value for _, value in told.top] == sorted((v for _, v in told.top), reverse=True)
        assert sum(math.exp(value) for _, value in told.top) <= 1 + 1e-6


def test_every_token_is_drawn_from_its_own_row(
    context: Context, prompt: Prompt, nano_gguf: Path
) -> None:
    """Nothing is drafted, and tokens forced by a mask have log-probabilities, too."""
    run = Run(context, MaskCompiler(nano_gguf))
    run.answer(1, prompt(COUNT), n_logprobs=0)
    run.add(2, prompt(COUNT), n_logprobs=0)
    run.add(3, prompt("hello"), n_logprobs=2, grammar='start: "A, B, C, D, E" <|return|>')
    run.finish()
    assert run.engine.stats().n_drafted == 0
    assert run.tokens[2] == run.tokens[1]
    assert len(run.logprobs[2]) == len(run.tokens[2])
    assert all(told.top == [] and told.logprob <= 0 for told in run.logprobs[2])
    masked = run.logprobs[3]
    assert run.tokens[3][-1] == RETURN
    assert len(run.tokens[3]) == len(masked) > 5
    assert masked[0].logprob < masked[0].top[0][1]  # of the model, not of the grammar


def changed(logits: Logits, earlier: list[int], sampling: SamplingParams) -> Logits:
    """Apply a sampling's changes to the logits behind the tokens `earlier`."""
    for token, bias in sampling.logit_bias:
        logits[token] += bias
    if (p := sampling.penalties) is not None:
        counted = [token for token in earlier if token < FIRST_SPECIAL]
        counted = counted if p.last_n is None else counted[max(0, len(counted) - p.last_n) :]
        for token, n in Counter(counted).items():
            logits[token] *= p.repeat if logits[token] <= 0 else 1 / p.repeat
            logits[token] -= n * p.frequency + p.presence
    return logits


def check_best(
    model: Model, question: list[int], tokens: list[int], sampling: SamplingParams
) -> None:
    """Each token is the best one by the documented formula, up to rounding."""
    for i, logits in enumerate(alone(model, question, tokens)):
        logits = changed(logits, tokens[:i], sampling)
        assert logits[tokens[i]] >= logits.max() - 2 * ROUNDING


FIVE_BIASES = tuple((token, -100.0) for token in range(15, 20))


@pytest.mark.parametrize(
    ("change", "backend_sampling"),
    [
        ({"penalties": Penalties(frequency=4)}, True),
        ({"penalties": Penalties(presence=40, last_n=3)}, False),
        ({"penalties": Penalties(repeat=4, last_n=8)}, True),
        ({"penalties": Penalties(repeat=0.5, frequency=-2)}, False),
        ({"logit_bias": FIVE_BIASES}, False),
        ({"logit_bias": FIVE_BIASES, "penalties": Penalties(frequency=1.5, presence=0.5)}, True),
    ],
    ids=str,
)
def test_changes_of_logits(
    model: Model, context: Context, prompt: Prompt, backend_sampling: bool, change: dict[str, Any]
) -> None:
    run = Run(context, backend_sampling=backend_sampling)
    question, sampling = prompt(COUNT), SamplingParams(temperature=0, **change)
    plain = run.answer(1, question)
    tokens = run.answer(2, question, sampling, stop_tokens=[])
    assert tokens[: len(plain)] != plain
    assert run.engine.stats().n_drafted == 0
    check_best(model, question, tokens, sampling)
