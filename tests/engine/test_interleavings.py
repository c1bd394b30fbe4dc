"""Other requests never change an answer: it is the model's own.

A few random interleavings in CI, hundreds at night; for thousands:

    INTERLEAVINGS=5000 pytest tests/engine/test_interleavings.py -k own

Where llama.cpp has a GPU, `pytest -m gpu` does the same there.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.types import CacheType
from gptoss_local.engine.llama import Canary, Model, Sampler
from gptoss_local.engine.worker.cache.archive import PrefixStore
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache
from gptoss_local.engine.worker.drafts import Speculation
from tests.engine.interleavings import Interleaving, Judge, SmallMasks, repeatable
from tests.engine.smooth_model import GPU_TOLERANCE, TOLERANCE
from tests.engine.test_canary import keep_no_outputs

N_FEW, N_MANY = 20, int(os.environ.get("INTERLEAVINGS", "300"))
N_ON_GPU = int(os.environ.get("INTERLEAVINGS", "60"))
FEW_OR_MANY = pytest.mark.parametrize(
    "seeds", [range(N_FEW), pytest.param(range(N_FEW, N_MANY), marks=pytest.mark.nightly)], ids=len
)
MAX_FLIPS = 0.002  # of answers: 8 of 15,900 were seen
MAX_DISTANCE = 0.016  # of logits, or of odds: 0.0009 was seen
GPU_MAX_FLIPS = 0.1
MAX_CHI_SQUARE = 62  # of 20 bins, if all is well: once in a million runs

Break = Callable[[pytest.MonkeyPatch], None]


class Outcome:
    """All requests, and their verdicts."""

    def __init__(
        self,
        model: Model,
        seeds: range,
        tolerance: float = TOLERANCE,
        cache_type: CacheType = "bf16",
    ) -> None:
        masks = SmallMasks()
        self.judge = Judge(model, masks, tolerance, cache_type)
        self.done: Counter[str] = Counter()
        with repeatable():
            for seed in seeds:
                with tempfile.TemporaryDirectory() as folder:
                    run = Interleaving(model, masks, seed, Path(folder), cache_type)
                    run.run()
                self.judge.judge(run)
                self.done += run.done

    @property
    def chi_square(self) -> float:
        """Return how uneven the random numbers behind unseeded draws are."""
        counts = np.histogram(self.judge.draws, bins=20, range=(0, 1))[0]
        expected = len(self.judge.draws) / 20
        return float(((counts - expected) ** 2 / expected).sum())

    def check(self, *, max_flips: float = MAX_FLIPS, max_distance: float = MAX_DISTANCE) -> None:
        flips, n_answers = self.judge.flips, self.judge.n_answers
        print(dict(self.done), f"{self.judge.n_tokens} tokens, flips {flips} of {n_answers}")
        assert max(flips, default=0) <= max_distance
        assert len(flips) <= max(2, max_flips * n_answers)
        assert self.chi_square <= MAX_CHI_SQUARE


@FEW_OR_MANY
def test_every_answer_is_the_models_own(smooth_model: Model, seeds: range) -> None:
    outcome = Outcome(smooth_model, seeds)
    outcome.check()
    assert min(outcome.done.values()) > 0, outcome.done
    assert len(outcome.done) == 10, outcome.done


@pytest.mark.parametrize("cache_type", ["q8_0", "q4_0"])
@FEW_OR_MANY
def test_every_answer_is_the_models_own_with_a_small_cache(
    wide_model: Model, seeds: range, cache_type: CacheType
) -> None:
    Outcome(wide_model, seeds[::8], cache_type=cache_type).check()


@pytest.mark.gpu
def test_every_answer_is_the_models_own_on_a_gpu(gpu_model: Model) -> None:
    outcome = Outcome(gpu_model, range(N_ON_GPU), GPU_TOLERANCE)
    outcome.check(max_flips=GPU_MAX_FLIPS, max_distance=GPU_TOLERANCE)


def wrong_drafts_are_accepted(patch: pytest.MonkeyPatch) -> None:
    drafts = Speculation.drafts

    def shifted(*arguments: Any) -> Any:
        return {s: [*d[1:], d[0]] for s, d in drafts(*arguments).items()}

    patch.setattr(Speculation, "drafts", shifted)
    patch.setattr("gptoss_local.engine.worker.sampling.draw._draw", lambda s, c, row, draft: (
        [*draft, s.sampler.sample(c, row + len(draft))] if draft else [s.sampler.sample(c, row)]
    ))  # fmt: skip


def random_states_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A new owner of a chain continues with the old one's random numbers."""
    bind = Sampler.bind

    def keep_the_old(self: Sampler, context: Any, seq_id: int) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr("llama_cpp.llama_sampler_copy", lambda *_: None)
            return bind(self, context, seq_id)

    patch.setattr(Sampler, "bind", keep_the_old)


def owners_are_one_in_memory(patch: pytest.MonkeyPatch) -> None:
    match, place = PrefixCache.match, PrefixCache.place
    patch.setattr(PrefixCache, "match", lambda c, tokens, n, salt: match(c, tokens, n, b""))
    patch.setattr(PrefixCache, "place", lambda *a, **o: place(*a, **o | {"salt": b""}))


def owners_are_one_on_disk(patch: pytest.MonkeyPatch) -> None:
    find, write = PrefixStore.find, PrefixStore.write
    patch.setattr(PrefixStore, "find", lambda s, tokens, n, salt: find(s, tokens, n, b""))
    patch.setattr(PrefixStore, "write", lambda s, *prefix: write(s, *prefix[:-1], b""))


@pytest.mark.nightly  # it watches the watchmen
@pytest.mark.parametrize(
    "broken",
    [
        *(keep_no_outputs, wrong_drafts_are_accepted, random_states_are_lost),
        *(owners_are_one_in_memory, owners_are_one_on_disk),
    ],
)
def test_faults_are_noticed(
    smooth_model: Model, monkeypatch: pytest.MonkeyPatch, broken: Break
) -> None:
    broken(monkeypatch)
    monkeypatch.setattr(Canary, "check", lambda *_: None)  # or else it would notice first
    with pytest.raises((AssertionError, GptOssError)):
        Outcome(smooth_model, range(20)).check()
