"""Idle conversations leave the cache once they have cost others more than their return takes."""

import random
import statistics
from array import array
from pathlib import Path
from typing import NamedTuple

import pytest

from gptoss_local.engine.llama import Model
from gptoss_local.engine.worker.cache.archive import Archive
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.cache.slots import Slot, Slots
from gptoss_local.engine.worker.costs import IdleCosts
from tests.engine.prefix_run import on_disk, text
from tests.engine.run import make_context
from tests.engine.simulated_engine import Arrival, Profile, SimulatedEngine, replay

N_FIRST, N_ANSWER, N_ACTIVE, N_ROUNDS = 6000, 150, 5, 18
H100 = Profile(
    n_ctx=131_072,
    n_batch=2048,
    n_seq=16,
    decode=((1, 3.4e-3), (16, 17.3e-3)),
    prefill=((1, 3.4e-3), (2048, 0.1)),
    cell_s=9.3e-9,
)


class Speed(NamedTuple):
    first_token_s: float
    tok_s: float


def day(n_idle: int) -> tuple[Speed, SimulatedEngine]:
    """Five conversations continue while others are read once; return the last turns' speed."""
    engine = SimulatedEngine(H100)
    turns = [(number, 0) for number in range(N_ACTIVE + n_idle)]
    turns += [(number, n) for n in range(1, N_ROUNDS) for number in range(N_ACTIVE)]
    arrivals = [
        Arrival(
            at_s=1.0,
            prompt=((1 + number, N_FIRST + n * (N_ANSWER + 30)),),
            n_answer=N_ANSWER,
            follows=i - 1 if i else None,
        )
        for i, (number, n) in enumerate(turns)
    ]
    last = replay(arrivals, engine)[-2 * N_ACTIVE :]
    first_token_s = statistics.median(served.first_token_s for served in last)
    return Speed(first_token_s, statistics.median(served.tok_s for served in last)), engine


def test_after_a_day_answers_are_as_fast_as_without_idle_conversations() -> None:
    (alone, _), (beside, engine) = day(0), day(35)
    assert beside.first_token_s < 1.03 * alone.first_token_s
    assert beside.tok_s > 0.97 * alone.tok_s
    still_cached = [n for n in range(40) if engine.n_cached(array("i", [1 + n] * N_FIRST))]
    assert still_cached[:N_ACTIVE] == list(range(N_ACTIVE))
    assert len(still_cached) <= N_ACTIVE + 1


@pytest.mark.parametrize("share", [1e-6, 3e-6, 1e-5])
def test_the_cost_of_a_cell_is_learned_from_steps(share: float) -> None:
    rng, costs = random.Random(1), IdleCosts()
    for i in range(60_000):
        n_cells = 1000 * (i // 500 % 40)
        step_s = 0.01 * (1 + share * n_cells) * rng.uniform(0.95, 1.05)
        costs.learn_step(1, n_cells, 1.0 if rng.random() < 0.001 else step_s)  # a stall
    assert costs.share == pytest.approx(share, rel=0.25)


class Cache:
    """The cache and archive of an engine that is not there; each answer takes it no time."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.context = make_context(model, n_ctx=4096, n_seq_max=5, n_batch=512, cache_type="bf16")
        options = on_disk(folder)
        self.slots = Slots(self.context)
        self.cache = PrefixCache(self.context, self.slots, options)
        self.archive = Archive(self.context, self.slots, self.cache, options)

    def answer(self, tokens: list[int], *, in_memory: bool = False) -> Slot:
        wanted = array("i", tokens)
        self.archive.fetch(wanted, self.cache.match(wanted, len(wanted)).n_tokens, len(wanted), b"")
        match = self.cache.match(wanted, len(wanted))
        slot = self.cache.place(wanted, match, n_asked=len(wanted), in_memory=in_memory)
        for start in range(match.n_tokens, len(wanted), 512):
            chunk = wanted[start : start + 512]
            self.context.decode(chunk, position=start, seq_id=slot.index)
            slot.tokens += chunk
        self.cache.retire(slot)
        return slot


def test_cheap_prefixes_leave_first(smooth_model: Model, tmp_path: Path) -> None:
    """A prefix on disk is read faster than one that is not is computed."""
    it = Cache(smooth_model, tmp_path)
    costs, n = it.cache.costs, 800
    saved = it.answer(text(1, n))
    while it.archive.save_one():
        pass
    new, private = it.answer(text(2, n)), it.answer(text(3, n), in_memory=True)
    newest = it.answer(text(4, n))
    costs.read_s, costs.prefill_s = 1e-4, 4e-4

    def lengths_after(busy_s: float) -> list[int]:
        costs.busy_s = busy_s
        it.cache.make_way_at_times()
        return [len(slot.tokens) for slot in (saved, new, private, newest)]

    assert lengths_after(4.0) == [n, n, n, n]
    assert lengths_after(0.9 * costs.read_s / costs.share) == [n, n, n, n]
    assert lengths_after(1.1 * costs.read_s / costs.share) == [0, n, n, n]
    assert lengths_after(0.9 * costs.prefill_s / costs.share) == [0, n, n, n]
    assert lengths_after(1.1 * costs.prefill_s / costs.share) == [0, 0, 0, n]
    assert it.archive.close() is None
    assert len(list(tmp_path.rglob("*.prefix"))) == 2  # the newest, too, and nothing private
    before = costs.read_s
    it.answer(text(1, n))
    assert costs.read_s != before
    assert it.slots.check() == []
    it.context.close()
