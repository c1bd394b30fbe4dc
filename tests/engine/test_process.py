"""The main loop of the engine process, on an engine that says it computes aside."""

import io
import queue
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.types import ContextParams, SamplingParams
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import (
    LENGTH_BYTES,
    Close,
    Command,
    Event,
    Finished,
    Generate,
    Prefetch,
    Tokens,
    decode_event,
    encode_frame,
    write_frames,
)
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.process import _Closed, _serve
from gptoss_local.engine.worker.scheduler import StepTiming

PROMPT = [200006, 1428, 200008, 72]


class Aside(StepTiming):
    """As on a GPU; a CPU computes within the call, so there is no later."""

    @property
    def computes_aside(self) -> bool:
        return True

    @computes_aside.setter
    def computes_aside(self, value: bool) -> None:
        pass


class Sent(io.RawIOBase):
    """The frames that were written, each with the last position that had been decoded."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.frames: list[tuple[Event, int]] = []

    def write(self, data: Any) -> int:
        left = bytes(data)
        while left:
            end = LENGTH_BYTES + int.from_bytes(left[:LENGTH_BYTES], "little")
            event = decode_event(left[LENGTH_BYTES:end])
            self.frames.append((event, self._context.positions(0)[1]))
            left = left[end:]
        return len(data)


class Full(io.BytesIO):
    """A pipe that takes a part of what is written."""

    def write(self, data: Any) -> int:
        return super().write(data[:5])


def test_a_pipe_that_takes_a_part_gets_the_rest() -> None:
    pipe = Full()
    events: list[Event] = [Tokens(1, [200006] * 9), Tokens(2, [72])]
    write_frames(pipe, events)
    assert pipe.getvalue() == b"".join(map(encode_frame, events))


@pytest.mark.parametrize(
    ("timing", "sent_at"),
    [(StepTiming, [3, 4, 5, 6, 7, 8, 8]), (Aside, [4, 5, 6, 7, 8, 8, 8])],
)
def test_tokens_are_sent_in_order_and_none_stays(
    nano_gguf: Path,
    timing: type[StepTiming],
    sent_at: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gptoss_local.engine.worker.engine.StepTiming", timing)
    model = Model(nano_gguf)
    params = ContextParams(n_ctx=512, n_threads_prefill=1, n_threads_decode=1)
    context = Context(model, params)
    engine = Engine(context)
    sent, commands = Sent(context), queue.SimpleQueue[Command]()
    greedy = SamplingParams(temperature=0)
    commands.put(Generate(seq_id=1, prompt=PROMPT, sampling=greedy, stop_tokens=[], max_tokens=6))
    with pytest.raises(_Closed):
        _serve(_closing(engine, commands), commands, sent)
    events = [event for event, _ in sent.frames]
    assert [len(e.tokens) for e in events if isinstance(e, Tokens)] == [1] * 6
    assert isinstance(events[-1], Finished)
    assert [position for _, position in sent.frames] == sent_at
    model.close()


def test_an_end_does_not_wait_for_a_prefetch(
    nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(nano_gguf)
    params = ContextParams(n_ctx=512, n_threads_prefill=1, n_threads_decode=1)
    context = Context(model, params)
    monkeypatch.setattr("gptoss_local.engine.worker.engine.StepTiming", Aside)
    engine = Engine(context)
    sent, commands = Sent(context), queue.SimpleQueue[Command]()
    greedy, n_sent = SamplingParams(temperature=0), []

    def prefetch() -> None:
        n_sent.append(len(sent.frames))
        commands.put(Close())

    monkeypatch.setattr(engine._prefetcher, "step", prefetch)
    commands.put(Generate(seq_id=1, prompt=PROMPT, sampling=greedy, stop_tokens=[], max_tokens=2))
    commands.put(Prefetch("x", [200006, 1428, 5]))
    with pytest.raises(_Closed):
        _serve(engine, commands, sent)
    assert n_sent == [3]
    model.close()


def _closing(engine: Engine, commands: "queue.SimpleQueue[Command]") -> Engine:
    """Close when it has nothing left to do."""
    finish = engine._finish

    def finish_and_close(*arguments: Any) -> Finished:
        commands.put(Close())
        return finish(*arguments)

    engine._finish = finish_and_close  # type: ignore[method-assign]
    return engine
