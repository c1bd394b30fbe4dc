"""Reusing a prefix never changes the logits: they equal those of a full prefill.

Fifty random conversations in CI, more at night; for other ones:

    PREFIX_EXAMPLES=500 pytest tests/engine/test_prefix.py -k random

Where llama.cpp has a GPU, `pytest -m gpu` does the same there.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gptoss_local.engine.llama import Context
from gptoss_local.engine.worker.cache import archive, prefix_cache
from gptoss_local.engine.worker.cache.slots import Slot, Slots
from tests.engine.prefix_run import CALL, END, Asked, Run, in_memory, on_disk, text
from tests.engine.smooth_model import GPU_TOLERANCE, N_WINDOW, TOLERANCE

N_EXAMPLES = int(os.environ.get("PREFIX_EXAMPLES", "0"))

SYSTEMS = [[*text(1, 50), END], [*text(2, 20), END]]


class Chatter:
    """Random clients of an engine: they ask, continue, edit, branch, use tools, prefetch, leave."""

    def __init__(self, run: Run, draw_: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._run = run
        self._draw = draw_
        self._n_texts = 100

    def act(self) -> None:
        asked = [a for a in self._run.asked if a.answer or a.end]
        actions = [self._begin]
        if asked:
            actions += [self._go_on, self._go_on, self._use_tool, self._edit, self._cut]
            actions += [self._again, self._prefetch, self._cancel, self._rest]
        self._draw(st.sampled_from(actions))()
        for _ in range(self._draw(st.integers(0, 25))):
            if self._run.engine.has_work:
                self._run.step()

    def _int(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def _some(self) -> Asked:
        asked = [a for a in self._run.asked if a.answer or a.end]
        return asked[-1 - min(self._int(0, 4), len(asked) - 1)]

    def _message(self, n_max: int = 60) -> list[int]:
        self._n_texts += 1
        return [*text(self._n_texts, self._int(1, n_max)), END]

    def _ask(self, prompt: list[int]) -> None:
        if len(prompt) < self._run.context.n_ctx:
            n_answer = self._int(1, 8) if self._int(0, 3) else self._int(40, 150)
            self._run.ask(prompt, n_answer, salt=self._salt())

    def _salt(self) -> bytes:
        return b"" if self._int(0, 4) else b"another owner"

    def _begin(self) -> None:
        n_max = 60 if self._int(0, 3) else 250
        self._ask(SYSTEMS[self._int(0, 1)] + self._message(n_max))

    def _history(self) -> list[int]:
        """A turn that is over: without the analysis that the answer began with."""
        asked = self._some()
        return asked.prompt + asked.answer[self._int(0, len(asked.answer)) :] + [END]

    def _go_on(self) -> None:
        self._ask(self._history() + self._message())

    def _use_tool(self) -> None:
        asked = self._some()
        self._ask(asked.prompt + asked.answer + [CALL] + self._message())

    def _edit(self) -> None:
        prompt = self._some().prompt
        ends = [i + 1 for i, token in enumerate(prompt) if token == END]
        self._ask(prompt[: ends[self._int(0, len(ends) - 1)]] + self._message())

    def _cut(self) -> None:
        prompt = self._some().prompt
        self._ask(prompt[: self._int(1, len(prompt))] + self._message(3))

    def _again(self) -> None:
        self._ask(self._some().prompt)

    def _prefetch(self) -> None:
        self._run.prefetch(self._history(), lineage=str(self._int(0, 2)), salt=self._salt())

    def _cancel(self) -> None:
        seq_id = len(self._run.asked) - 1 - self._int(0, min(3, len(self._run.asked) - 1))
        self._run.cancel(seq_id)

    def _rest(self) -> None:
        """Rest until all prefixes are written and unneeded ones have made way."""
        self._run.finish()
        engine = self._run.engine
        while engine.archive and engine.archive.wait_s(engine.n_done) is not None:
            engine.archive.rest()


def converse(start: Callable[..., Run], data: st.DataObject, folder: Path) -> Run:
    """One engine of a random size, and all that random clients do with it."""
    run = start(
        n_ctx=data.draw(st.sampled_from([256, 512, 768])),
        n_seq=data.draw(st.sampled_from([1, 2, 3, 4])),
        n_batch=data.draw(st.sampled_from([64, 32])),
        prefixes=on_disk(
            folder,
            checkpoint_bytes=data.draw(st.sampled_from([0, 3, 40])) * 18_000,
            disk_bytes=2**24 if data.draw(st.booleans()) else 0,
            keep_s=0,
        ),
    )
    chatter = Chatter(run, data.draw)
    for _ in range(data.draw(st.integers(6, 16))):
        chatter.act()
    run.finish()
    run.check_owners()
    return run


def random_conversations(
    start: Callable[..., Run], n_examples: int, *, seed_by_source: bool = True
) -> tuple[Counter[str], float]:
    """Return the sum of all actions, and the largest error."""
    done: Counter[str] = Counter()
    worst = [0.0]

    @settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=seed_by_source,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def count(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = converse(start, data, Path(folder))
        worst[0] = max(worst[0], *run.errors(), 0.0)
        stats = run.engine.stats()
        done.update(
            requests=len(run.asked),
            cached=stats.n_cached_tokens,
            evicted=stats.n_evicted,
            checkpoints=stats.n_checkpoints,
            preempted=stats.n_preempted,
            prefetched=stats.n_prefetched,
        )
        run.close()

    with moves_into(done):
        count()
    return done, worst[0]


@contextmanager
def moves_into(done: Counter[str]) -> Iterator[None]:
    """Let small prefixes be written and make way, too; count those that move."""
    move = Slots.move

    def count(slots: Slots, slot: Slot) -> None:
        done["moved"] += 1
        move(slots, slot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_cache, "_FEW_CELLS", 0)
        patch.setattr(archive, "_WORTH_TOKENS", 16)
        patch.setattr(Slots, "move", count)
        yield


@pytest.mark.parametrize("n_examples", [100, pytest.param(500, marks=pytest.mark.nightly)])
def test_random_conversations_have_the_logits_of_a_full_prefill(
    start: Callable[..., Run], n_examples: int
) -> None:
    done, worst = random_conversations(
        start, N_EXAMPLES or n_examples, seed_by_source=not N_EXAMPLES
    )
    print(dict(done), f"largest error {worst:.1e}")
    assert worst <= TOLERANCE
    assert done["moved"] > 0, done
    assert min(done.values()) > 0, done


def rule(n_missing: int) -> Callable[[Context, int, int], bool]:
    """Let a sequence continue with so many positions of its window missing; llama.cpp does."""

    def can_resume(self: Context, seq_id: int, position: int) -> bool:
        first, last = self.positions(seq_id)
        return position - 1 <= last and first <= max(0, position - N_WINDOW + 1 + n_missing)

    return can_resume


@pytest.mark.gpu
def test_random_conversations_on_a_gpu(start_on_gpu: Callable[..., Run]) -> None:
    done, worst = random_conversations(
        start_on_gpu, N_EXAMPLES or 40, seed_by_source=not N_EXAMPLES
    )
    print(dict(done), f"largest error {worst:.1e}")
    assert worst <= GPU_TOLERANCE
    assert min(done.values()) > 0, done


@pytest.mark.gpu
def test_a_rule_that_is_too_lax_is_noticed_on_a_gpu(
    start_on_gpu: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "can_resume", rule(n_missing=N_WINDOW // 2))
    worst = random_conversations(start_on_gpu, 15)[1]
    print(f"largest error {worst:.1e}")
    assert worst > 2 * GPU_TOLERANCE


@pytest.mark.parametrize("n_missing", [0, 1])
def test_one_missing_position_is_noticed(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, n_missing: int
) -> None:
    """Cut by one token, when another sequence has taken all that was behind the window."""
    monkeypatch.setattr(Context, "can_resume", rule(n_missing))
    errors = []
    for seed in range(1, 4):
        run = start(n_ctx=768, n_seq=2, prefixes=in_memory(0))
        run.answer(text(seed, 100), n_answer=1)
        run.answer(text(10, 600))
        again = run.answer(text(seed, 99) + text(20, 1), n_answer=2)
        assert again.n_cached == 99 * n_missing
        errors.append(max(run.errors()))
    assert (max(errors) > TOLERANCE) == bool(n_missing), errors
