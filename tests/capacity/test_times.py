"""The simulated clock: with the steps of a real run, every token comes when it came there."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from gptoss_local.cluster.capacity.profile import Profile
from gptoss_local.cluster.capacity.simulated_engine import Arrival, SimulatedEngine, replay
from gptoss_local.engine.worker.costs import PrefillPace

BENCH = Path(__file__).parents[2] / "bench"
N_CTX, N_BATCH, N_SEQ, N_STREAMS = 2048, 512, 3, 5


@pytest.fixture
def capacity_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import capacity_check

    for name, value in {"N_CTX": N_CTX, "N_BATCH": N_BATCH, "N_SEQ": N_SEQ}.items():
        monkeypatch.setattr(capacity_check, name, value)
    return cast(ModuleType, capacity_check)


class Recorded:
    """Stands in for a profile: gives a step's recorded time, if it is the recorded step."""

    n_ctx, n_batch, n_seq = N_CTX, N_BATCH, N_SEQ
    decode = ((1, 0.001), (N_SEQ, 0.002))

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps: Iterator[Any] = iter(steps)

    def step_s(self, depths: list[int], chunks: list[tuple[int, int]], n_cells_held: int) -> float:
        step = next(self._steps)
        assert (depths, chunks, n_cells_held) == step[:3]
        return cast(float, step.seconds)


def test_tokens_come_when_they_came(
    capacity_check: ModuleType, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of too few slots: they come together or while a step runs, wait, and ask again."""
    # the engine times less of a step than the whole, from which the simulation would learn its pace
    monkeypatch.setattr(PrefillPace, "observe", lambda *_, **__: None)
    dice = random.Random(0)
    requests = [
        Arrival(
            at_s=0.02 * (number // 2) if number < N_STREAMS else 0.0,
            prompt=((number, dice.randrange(20, 300)),),
            n_answer=dice.randrange(2, 25),
            follows=number - N_STREAMS if number >= N_STREAMS else None,
        )
        for number in range(14)
    ]
    with capacity_check.in_thread(nano_gguf) as real:
        answers = real.ask(requests)
        steps = real.steps
    assert {bool(step.depths) + 2 * bool(step.chunks) for step in steps} == {1, 2, 3}
    served = replay(requests, [SimulatedEngine(cast(Profile, Recorded(steps)))])
    start_s = answers[0][0]
    for each, (sent_s, times_s) in zip(served, answers, strict=True):
        assert each.arrived_s == pytest.approx(sent_s - start_s, abs=1e-6)
        assert each.times_s == pytest.approx([time_s - start_s for time_s in times_s], abs=1e-6)
