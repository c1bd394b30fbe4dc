"""Continuous batching on the real model: fairness, preemption, cancel, accounting, faults."""

import time

import pytest

from gptoss_local.base.errors import ContextOverflowError, EngineError, GptOssError
from gptoss_local.engine.llama import Batch, Context, Model, Sampler
from gptoss_local.engine.protocol import Failed
from tests.engine.run import Prompt, running

TEXTS = ("Count from 1 to 20.", "What is the capital of France?", "Tell me about the old river.")
LONG = "The old river is near the quiet house. " * 200
ENDLESS = "Count from 1 to 900."


def test_a_higher_priority_runs_first(model: Model, prompt: Prompt) -> None:
    with running(model, n_seq=1) as run:
        for i, priority in enumerate([0, -1, 0, 5, 5]):
            run.add(i, prompt(TEXTS[i % 3]), priority=priority)
            if i == 0:
                run.step()  # it is not stopped for the others
        run.finish()
        assert list(run.ends) == [0, 3, 4, 2, 1]


@pytest.mark.parametrize(
    ("priorities", "n_tokens", "ended"),
    [([0, 1], 120, [1, 0]), ([0] * 6, 100, [0, 1, 2, 3, 4, 5])],
)
def test_who_gives_way_in_a_full_cache(
    model: Model, prompt: Prompt, priorities: list[int], n_tokens: int, ended: list[int]
) -> None:
    """The lowest priority, whichever came first; among equals never the oldest."""
    with running(model, n_ctx=256, n_seq=3) as run:
        for i, priority in enumerate(priorities):
            run.add(i, prompt(ENDLESS), stop_tokens=[], max_tokens=n_tokens, priority=priority)
        run.finish()
        assert list(run.ends) == ended
        assert run.engine.stats().n_preempted > 0


def test_long_prefill_beside_a_stream(model: Model, prompt: Prompt) -> None:
    """Every step of the prefill brings the stream its token, and the answer is the right one."""
    long = prompt(f"{LONG}Count from 1 to 9.")
    with running(model) as run:
        wanted = run.answer(1, long, max_tokens=20)
    with running(model) as run:
        run.add(0, prompt(ENDLESS), max_tokens=None, stop_tokens=[])
        run.step()
        run.add(1, long, max_tokens=20)
        n_steps = 0
        while not run.tokens[1]:
            n_before = len(run.tokens[0])
            run.step()
            n_steps += 1
            assert len(run.tokens[0]) == n_before + 1
        assert n_steps > len(long) // 512
        run.cancel(0)
        assert run.finish()[1] == wanted


def test_cancel_frees_the_cells_at_once(model: Model, prompt: Prompt) -> None:
    with running(model, n_seq=2) as run:
        for i in range(3):
            run.add(i, prompt(LONG))
        run.step()
        assert run.engine.stats().n_cells_used == run.context.n_batch
        run.cancel(0)  # in prefill
        assert run.engine.stats().n_cells_used == 0
        run.cancel(2)  # waiting
        while not run.tokens[1]:
            run.step()
        run.cancel(1)  # in decode
        run.cancel(1)  # over
        assert not run.engine.has_work
        assert run.engine.stats().n_cells_used == 0
        assert run.engine.check() == []
        assert [run.end(i).reason for i in range(3)] == ["cancelled"] * 3


def test_usage_tells_the_times_apart(
    monkeypatch: pytest.MonkeyPatch, model: Model, prompt: Prompt
) -> None:
    """On a GPU a decode call returns at once; reading the result waits, which counts as prefill."""
    sample, synchronize = Sampler.sample, Context.synchronize
    waits: list[float] = []

    def sample_late(self: Sampler, context: Context, row: int) -> int:
        time.sleep(waits.pop() if waits else 0)
        return sample(self, context, row)

    def synchronize_late(self: Context) -> None:
        time.sleep(waits.pop() if waits else 0)
        synchronize(self)

    monkeypatch.setattr(Sampler, "sample", sample_late)
    monkeypatch.setattr(Context, "synchronize", synchronize_late)
    with running(model, n_seq=1) as run:
        for i, max_tokens in enumerate((2, 0)):
            waits[:] = [1.0]
            run.answer(i, prompt(TEXTS[i]), max_tokens=max_tokens)
            assert run.end(i).usage.prefill_ns > 1e9 > run.end(i).usage.decode_ns
        for i in (2, 3):
            run.add(i, prompt(TEXTS[2]), max_tokens=10)
        run.finish()
        first, second = run.end(2).usage, run.end(3).usage
        assert (first.n_prompt, first.n_generated) == (len(prompt(TEXTS[2])), 10)
        assert min(first.prefill_ns, first.decode_ns) > 0
        assert second.queue_ns > first.prefill_ns + first.decode_ns > first.queue_ns


@pytest.mark.parametrize("error", [EngineError("broken"), ContextOverflowError("full")])
def test_failed_decode_ends_the_sequence_concerned_alone(
    model: Model, prompt: Prompt, monkeypatch: pytest.MonkeyPatch, error: GptOssError
) -> None:
    """The others of its batch continue with the tokens they would have had."""
    poison, wanted = 77, dict[int, list[int]]()
    for is_broken in (False, True):
        with running(model) as run:
            decode_batch = run.context.decode_batch

            def decode(batch: Batch, decode_batch=decode_batch) -> None:  # type: ignore[no-untyped-def]
                decode_batch(batch)
                if poison in batch.tokens[: batch.n_tokens]:
                    raise error

            monkeypatch.setattr(run.context, "decode_batch", decode)
            for i, text in enumerate(TEXTS):
                run.add(i, prompt(text))
            for _ in range(3):
                run.step()
            if not is_broken:
                wanted = run.finish()
                continue
            run.add(9, [*prompt("hi"), poison])
            run.finish()
            failed = run.ends[9]
            assert isinstance(failed, Failed)
            assert (failed.error, failed.message) == (type(error).__name__, error.message)
            assert {i: run.tokens[i] for i in range(3)} == wanted
            assert all(run.end(i) for i in range(3))


def test_check_notices_a_lost_cell(model: Model, prompt: Prompt) -> None:
    with running(model) as run:
        run.add(0, prompt("hi"))
        run.step()
        run.context.remove(7, start=0)
        assert run.engine.check() == []
        slot = next(i for i in range(8) if run.context.positions(i)[1] >= 0)
        run.context.remove(slot, start=3)
        assert "last position 2" in run.engine.check()[0]
