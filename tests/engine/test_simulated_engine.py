"""The simulated engine decides as the real one does."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import Generate
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.scheduler import Work
from gptoss_local.machine.plan.memory import Shape
from tests.engine.simulated_engine import Arrival, Profile, Served, SimulatedEngine

N_CTX, N_BATCH, N_SEQ = 1024, 128, 3
Decisions = list[list[tuple[int, int]]]
"""Of each step: the sequences, and how many tokens of each."""


class Steps:
    """Stands in for a profile: each step takes as long as the real engine's step."""

    n_ctx, n_batch, n_seq = N_CTX, N_BATCH, N_SEQ
    decode = ((1, 0.001), (N_SEQ, 0.002))

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds

    def step_s(self, n_streams: int, n_prefilled: int, n_cells: int) -> float:
        return next(self._seconds) if n_prefilled else 0.001


@pytest.fixture(scope="module")
def model(bare_gguf: Path) -> Iterator[Model]:
    model = Model(bare_gguf)
    yield model
    model.close()


def test_decides_as_the_real_engine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that share nothing, more than fit at once: the same parts in the same steps."""
    dice = random.Random(0)
    # in which step it comes, tokens of the prompt and of the answer
    arrivals = sorted((dice.randrange(60), dice.randrange(1, 500), dice.randrange(1, 40))
                      for _ in range(14))  # fmt: skip
    real, seconds = run_real(model, arrivals, monkeypatch)
    simulated = run_simulated(arrivals, iter(seconds))
    assert len(real) > 60
    assert any(len(step) == N_SEQ for step in real)
    assert any(len({n for _, n in step}) > 1 for step in real), "no step had both"
    assert simulated == real


def run_real(
    model: Model, arrivals: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Decisions, list[float]]:
    """Return its decisions, and the seconds of each step with a part of a prompt."""
    shape = Shape(n_ctx=N_CTX, n_batch=N_BATCH, n_seq=N_SEQ, n_outputs=N_SEQ)
    context = Context(model, shape.context_params(n_threads_prefill=1, n_threads_decode=1))
    engine = Engine(context)
    scheduler: Any = engine._scheduler
    decisions: Decisions = []
    seconds: list[float] = []
    plan, observe = scheduler.plan, scheduler.observe_prefill

    def planned() -> list[Work]:
        work = plan()
        decisions.append(as_decision(work))
        return cast(list[Work], work)

    def observed(n_prefilled: int, step_s: float, *, is_alone: bool) -> None:
        seconds.append(step_s)
        observe(n_prefilled, step_s, is_alone=is_alone)

    monkeypatch.setattr(scheduler, "plan", planned)
    monkeypatch.setattr(scheduler, "observe_prefill", observed)
    waiting, n_steps = list(enumerate(arrivals)), 0
    while waiting or engine.has_work:
        while waiting and waiting[0][1][0] <= n_steps:
            number, (_, n_prompt, n_answer) = waiting.pop(0)
            request = Generate(
                seq_id=number,
                prompt=[number + 1] * n_prompt,
                sampling=SamplingParams(seed=1),
                stop_tokens=[],
                max_tokens=n_answer,
                drafts=False,
            )
            assert engine.add_request(request) == []
        if engine.has_work:
            engine.step()
        n_steps += 1
    assert engine.check() == []
    context.close()
    return decisions, seconds


def run_simulated(arrivals: list[tuple[int, int, int]], seconds: Iterator[float]) -> Decisions:
    engine = SimulatedEngine(cast(Profile, Steps(seconds)))
    decisions: Decisions = []
    waiting, n_steps = list(enumerate(arrivals)), 0
    while waiting or engine.n_outstanding:
        while waiting and waiting[0][1][0] <= n_steps:
            number, (_, n_prompt, n_answer) = waiting.pop(0)
            request = Arrival(at_s=0, prompt=((number + 1, n_prompt),), n_answer=n_answer)
            engine.add(Served(number, 0.0), request.tokens, n_answer)
        if engine.n_outstanding:
            engine.begin_step()
            decisions.append(as_decision(engine._plan))
            engine.end_step(float(n_steps))
        n_steps += 1
    return decisions


def as_decision(plan: list[Work]) -> list[tuple[int, int]]:
    return [(work.sequence.request.seq_id, work.n_tokens) for work in plan]
