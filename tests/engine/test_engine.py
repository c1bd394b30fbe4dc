"""Continuous batching on the real model: right tokens, fairness, preemption, cancel, faults."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gptoss_local.base.errors import ContextOverflowError, EngineError, GptOssError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.llama import Batch, Context, Model, Sampler
from gptoss_local.engine.protocol import (
    Failed,
    Finished,
    encode_frame,
)
from tests.engine.run import Prompt, Run, load_of, running

TEXTS = [
    "Count from 1 to 20.",
    "What is the capital of France?",
    "Tell me about the old river and the moon.",
    "hi",
    "Count from 5 to 50.",
    "Write a list of fruits.",
    "What is 3 plus 4?",
    "Repeat: the quiet house near the river.",
]


@pytest.mark.parametrize("backend_sampling", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_eight_together_are_as_each_alone(
    model: Model, prompt: Prompt, temperature: float, backend_sampling: bool
) -> None:
    """Whether all come at once or one after the other; seeds are their own."""

    def ask(run: Run, i: int) -> None:
        run.add(i, prompt(TEXTS[i]), SamplingParams(temperature=temperature, seed=i))

    alone: dict[int, list[int]] = {}
    with running(model, backend_sampling=backend_sampling) as run:
        for i in range(8):
            ask(run, i)
            alone |= run.finish()
    with running(model, backend_sampling=backend_sampling) as run:
        for i in range(8):
            ask(run, i)
        assert run.finish() == alone
    with running(model, n_seq=4, backend_sampling=backend_sampling) as run:
        for i in range(8):
            ask(run, i)
            run.step()
            run.step()
        assert run.finish() == alone


def test_a_higher_priority_runs_first(model: Model, prompt: Prompt) -> None:
    with running(model, n_seq=1) as run:
        for i, priority in enumerate([0, -1, 0, 5, 5]):
            run.add(i, prompt(TEXTS[i]), priority=priority)
            if i == 0:
                run.step()  # it is not stopped for the others
        run.finish()
        assert list(run.ends) == [0, 3, 4, 2, 1]


def test_the_lowest_priority_gives_way(model: Model, prompt: Prompt) -> None:
    """When the cache is full; whichever came first."""
    with running(model, n_ctx=256, n_seq=2) as run:
        run.add(0, prompt(TEXTS[0]), stop=False, max_tokens=120)
        run.add(1, prompt(TEXTS[1]), stop=False, max_tokens=120, priority=1)
        run.finish()
        assert list(run.ends) == [1, 0]
        assert run.engine.stats().n_preempted


def test_the_oldest_is_never_preempted_and_nobody_overtakes(model: Model, prompt: Prompt) -> None:
    with running(model, n_ctx=256, n_seq=3) as run:
        for i in range(6):
            run.add(i, prompt("Count from 1 to 900."), max_tokens=100, stop=False)
        run.finish()
        assert list(run.ends) == list(range(6))
        assert run.engine.stats().n_preempted > 0


def test_a_request_that_alone_would_fit_is_served(model: Model, prompt: Prompt) -> None:
    """It fills the whole cache while the others wait."""
    filler = prompt("The old river is near the quiet house. " * 20)
    with running(model, n_ctx=256, n_seq=3) as run:
        for i in range(3):
            run.add(i, filler, max_tokens=None, stop=False)
        run.finish()
        for i in range(3):
            end = run.ends[i]
            assert isinstance(end, Finished)
            assert end.reason == "length"
            assert len(filler) + len(run.tokens[i]) == 256 + 1  # the last one is not decoded


def test_long_prefill_beside_a_stream(model: Model, prompt: Prompt) -> None:
    """Every step of the prefill brings the stream its token, and the answer is the right one."""
    long = prompt("The old river is near the quiet house. " * 200 + "Count from 1 to 9.")
    with running(model) as run:
        run.add(1, long, max_tokens=20)
        wanted = run.finish()[1]
    with running(model) as run:
        run.add(0, prompt("Count from 1 to 900."), max_tokens=None, stop=False)
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
    long = prompt("The old river is near the quiet house. " * 200)
    with running(model, n_seq=2) as run:
        run.add(0, long)
        run.add(1, long)
        run.add(2, long)
        run.step()
        n_used = run.engine.stats().n_cells_used
        assert n_used == run.context.n_batch
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
        assert {i: e.reason for i, e in run.ends.items() if isinstance(e, Finished)} == {
            0: "cancelled", 1: "cancelled", 2: "cancelled",
        }  # fmt: skip


def test_usage_tells_the_times_apart(model: Model, prompt: Prompt) -> None:
    with running(model, n_seq=1) as run:
        for i in range(2):
            run.add(i, prompt(TEXTS[0]), max_tokens=10)
        run.finish()
        first, second = run.ends[0], run.ends[1]
        assert isinstance(first, Finished)
        assert isinstance(second, Finished)
        usage = first.usage
        assert (usage.n_prompt, usage.n_generated, usage.n_cached) == (len(prompt(TEXTS[0])), 10, 0)
        assert min(usage.prefill_ns, usage.decode_ns) > 0
        assert second.usage.queue_ns > usage.prefill_ns + usage.decode_ns > usage.queue_ns


def test_waiting_for_the_device_counts_as_prefill(
    monkeypatch: pytest.MonkeyPatch, model: Model, prompt: Prompt
) -> None:
    """On a GPU a decode call returns at once; reading the result waits."""
    sample, synchronize = Sampler.sample, Context.synchronize
    waits: list[float] = []

    def wait() -> None:
        if waits:
            time.sleep(waits.pop())

    def sample_late(self: Sampler, context: Context, row: int) -> int:
        wait()
        return sample(self, context, row)

    def synchronize_late(self: Context) -> None:
        wait()
        synchronize(self)

    monkeypatch.setattr(Sampler, "sample", sample_late)
    monkeypatch.setattr(Context, "synchronize", synchronize_late)
    with running(model, n_seq=1) as run:
        for i, max_tokens in enumerate((2, 0)):
            waits[:] = [1.0]
            run.add(i, prompt(TEXTS[i]), max_tokens=max_tokens)
            run.finish()
            end = run.ends[i]
            assert isinstance(end, Finished)
            assert end.usage.prefill_ns > 1e9 > end.usage.decode_ns


def fail_when(
    monkeypatch: pytest.MonkeyPatch, context: Context, token: int, error: GptOssError
) -> None:
    """Let every batch fail in which `token` is."""
    decode_batch = context.decode_batch

    def decode(batch: Batch) -> None:
        decode_batch(batch)
        if token in batch.tokens[: batch.n_tokens]:
            raise error

    monkeypatch.setattr(context, "decode_batch", decode)


@pytest.mark.parametrize("error", [EngineError("broken"), ContextOverflowError("full")])
def test_failed_decode_ends_the_sequence_concerned_alone(
    model: Model, prompt: Prompt, monkeypatch: pytest.MonkeyPatch, error: GptOssError
) -> None:
    """The others of its batch go on with the tokens they would have had."""
    poison = 77
    with running(model) as run:
        for i in range(4):
            run.add(i, prompt(TEXTS[i]))
        wanted = run.finish()
    with running(model) as run:
        fail_when(monkeypatch, run.context, poison, error)
        for i in range(4):
            run.add(i, prompt(TEXTS[i]))
        for _ in range(3):
            run.step()
        run.add(9, [*prompt("hi"), poison])
        run.finish()
        failed = run.ends.pop(9)
        assert isinstance(failed, Failed)
        assert (failed.error, failed.message) == (type(error).__name__, error.message)
        assert {i: run.tokens[i] for i in range(4)} == wanted
        assert all(isinstance(end, Finished) for end in run.ends.values())


def test_check_notices_a_lost_cell(model: Model, prompt: Prompt) -> None:
    with running(model) as run:
        run.add(0, prompt("hi"))
        run.step()
        run.context.remove(7, start=0)
        assert run.engine.check() == []
        slot = next(i for i in range(8) if run.context.positions(i)[1] >= 0)
        run.context.remove(slot, start=3)
        assert "last position 2" in run.engine.check()[0]


def test_half_a_frame_ends_the_process() -> None:
    """As a server leaves it that is killed while it writes."""
    half = encode_frame(load_of(Path("x")))[:-3]
    command = [sys.executable, "-m", "gptoss_local.engine.worker.start"]
    done = subprocess.run(command, input=half, capture_output=True, timeout=60)
    assert done.stdout == b""
