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
from gptoss_local.base.types import ContextParams, Penalties, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Generate, Logprob, Tokens
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sampling.draw import logprob
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.harmony.vocabulary import RETURN, STOP_TOKENS
from tests.engine.run import GREEDY, Prompt

Logits = npt.NDArray[np.float64]
ROUNDING = 0.4
"""The effect of company and of the order of cells on a logit of nano; see docs/structure.md."""
COUNT = "Count from 1 to 12."


def make_context(model: Model, n_ctx: int = 2048) -> Context:
    sizes = {"n_threads_prefill": 1, "n_threads_decode": 1, "n_seq_max": 3, "n_batch": 128}
    params = ContextParams(n_ctx=n_ctx, n_outputs_max=12, n_outputs_max_per_seq=10, **sizes)
    return Context(model, params)


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = make_context(model)
    yield context
    context.close()


def request(
    seq_id: int, prompt: list[int], sampling: SamplingParams = GREEDY, **fields: Any
) -> Generate:
    given = {"stop_tokens": STOP_TOKENS, "max_tokens": 60} | fields
    return Generate(seq_id=seq_id, prompt=prompt, sampling=sampling, **given)


def run(engine: Engine, *requests: Generate) -> dict[int, tuple[list[int], list[Logprob]]]:
    """Tokens and their log-probabilities of requests that run at once."""
    answers: dict[int, tuple[list[int], list[Logprob]]] = {r.seq_id: ([], []) for r in requests}
    for one in requests:
        assert engine.add_request(one) == []
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Tokens):
                tokens, logprobs = answers[event.seq_id]
                tokens += event.tokens
                logprobs += event.logprobs
        assert engine.check() == []
    return answers


def test_values_are_the_log_softmax() -> None:
    generator = np.random.default_rng(1)
    for n_vocab in (32, 1000, 201_088):
        logits = generator.normal(0, 9, n_vocab).astype(np.float32)
        exact = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64))
        best = np.argsort(-logits, kind="stable")[:20].tolist()
        told = logprob(logits, 7, 20)
        assert told.logprob == pytest.approx(exact[7], abs=1e-5)
        assert [token for token, _ in told.top] == best
        assert [value for _, value in told.top] == pytest.approx(exact[best], abs=1e-5)
    assert logprob(logits, 7, 0).top == []
    peaked = np.full(50, -40, np.float32)
    peaked[3] = 60
    assert logprob(peaked, 3, 2).top == [(3, 0.0), (0, -100.0)]


@pytest.mark.parametrize("backend_sampling", [False, True])
def test_equal_to_a_context_of_its_own(
    model: Model, context: Context, prompt: Prompt, backend_sampling: bool
) -> None:
    """Beside plain requests, which do not change, and where the device samples those."""
    engine = Engine(context, backend_sampling=backend_sampling)
    question, other = prompt(COUNT), prompt("What is the capital of France?")
    answers = run(engine, request(1, question, n_logprobs=5), request(2, other))
    tokens, logprobs = answers[1]
    assert len(tokens) == len(logprobs) > 20
    assert answers[2][1] == []
    assert run(engine, request(3, other))[3][0] == answers[2][0]

    alone = make_context(model)
    alone.decode(question, position=0)
    for i, (token, told) in enumerate(zip(tokens, logprobs, strict=True)):
        logits = alone.logits(-1).astype(np.float64)
        exact = logits - np.logaddexp.reduce(logits)
        assert told.logprob == pytest.approx(exact[token], abs=ROUNDING)
        for candidate, value in told.top:
            assert value == pytest.approx(exact[candidate], abs=2 * ROUNDING)
        assert told.top[0] == (token, told.logprob)  # greedy
        assert [value for _, value in told.top] == sorted((v for _, v in told.top), reverse=True)
        assert sum(math.exp(value) for _, value in told.top) <= 1 + 1e-6
        alone.decode([token], position=len(question) + i)
    alone.close()


def test_every_token_is_drawn_from_its_own_row(
    context: Context, prompt: Prompt, nano_gguf: Path
) -> None:
    """Nothing is drafted, and tokens forced by a mask have log-probabilities, too."""
    engine = Engine(context, MaskCompiler(nano_gguf))
    question = prompt(COUNT)
    first = run(engine, request(1, question, n_logprobs=0))[1]
    again, masked = run(
        engine,
        request(2, question, n_logprobs=0),
        request(3, prompt("hello"), n_logprobs=2, grammar='start: "A, B, C, D, E" <|return|>'),
    ).values()
    assert engine.stats().n_drafted == 0
    assert (again[0], len(again[1])) == (first[0], len(first[0]))
    assert all(told.top == [] and told.logprob <= 0 for told in again[1])
    assert masked[0][-1] == RETURN
    assert len(masked[0]) == len(masked[1]) > 5
    assert masked[1][0].logprob < masked[1][0].top[0][1]  # of the model, not of the grammar


def changed(logits: Logits, earlier: list[int], sampling: SamplingParams) -> Logits:
    """Apply a sampling's changes to the logits behind the tokens `earlier`."""
    logits = logits.copy()
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
    alone = make_context(model)
    alone.decode(question, position=0)
    for i, token in enumerate(tokens):
        logits = changed(alone.logits(-1).astype(np.float64), tokens[:i], sampling)
        assert logits[token] >= logits.max() - 2 * ROUNDING
        alone.decode([token], position=len(question) + i)
    alone.close()


FIVE_BIASES = tuple((token, -100.0) for token in range(15, 20))


@pytest.mark.parametrize(
    "change",
    [
        {"penalties": Penalties(frequency=4)},
        {"penalties": Penalties(presence=40, last_n=3)},
        {"penalties": Penalties(repeat=4, last_n=8)},
        {"penalties": Penalties(repeat=0.5, frequency=-2)},
        {"logit_bias": FIVE_BIASES},
        {"logit_bias": FIVE_BIASES, "penalties": Penalties(frequency=1.5, presence=0.5)},
    ],
    ids=str,
)
@pytest.mark.parametrize("backend_sampling", [False, True])
def test_changes_of_logits(
    model: Model, context: Context, prompt: Prompt, backend_sampling: bool, change: dict[str, Any]
) -> None:
    engine = Engine(context, backend_sampling=backend_sampling)
    question, sampling = prompt(COUNT), SamplingParams(temperature=0, **change)
    plain = run(engine, request(1, question))[1][0]
    tokens = run(engine, request(2, question, sampling, stop_tokens=[], max_tokens=40))[2][0]
    assert tokens[: len(plain)] != plain
    assert engine.stats().n_drafted == 0
    check_best(model, question, tokens, sampling)


def test_going_on_after_a_preemption(model: Model, prompt: Prompt) -> None:
    """Nothing is told twice, and penalties still know what the answer has."""
    context = make_context(model, n_ctx=256)
    engine = Engine(context)
    sampling = SamplingParams(temperature=0, penalties=Penalties(frequency=1.5))
    fields: dict[str, Any] = {"n_logprobs": 1, "stop_tokens": [], "max_tokens": 120}
    questions = [prompt(COUNT), prompt("Tell me about the old river and the moon.")]
    asked = [request(i, tokens, sampling, **fields) for i, tokens in enumerate(questions)]
    answers = run(engine, *asked)
    assert engine.stats().n_preempted > 0
    for question, (tokens, logprobs) in zip(questions, answers.values(), strict=True):
        assert len(tokens) == len(logprobs) == 120
        check_best(model, question, tokens, sampling)
    context.close()


@pytest.mark.parametrize("grammar", [None, "start: /[a-z ]{10,60}/ <|return|>"])
def test_seed_repeats(
    context: Context, prompt: Prompt, nano_gguf: Path, grammar: str | None
) -> None:
    """Also under a mask, where some tokens are drawn twice and counted once."""
    engine = Engine(context, MaskCompiler(nano_gguf))

    def ask(seq_id: int, seed: int) -> list[int]:
        penalties = Penalties(frequency=1, repeat=1.2)
        sampling = SamplingParams(temperature=8, seed=seed, penalties=penalties)
        return run(engine, request(seq_id, prompt("hi"), sampling, grammar=grammar))[seq_id][0]

    ask(1, 3)  # from here on the prompt is cached
    assert ask(2, 3) == ask(3, 3)
    assert len({tuple(ask(10 + seed, seed)) for seed in range(4)}) > 1
