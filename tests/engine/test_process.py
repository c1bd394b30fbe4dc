"""The engine process: its main loop, its frames and its environment."""

import io
import queue
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gptoss_local.base.types import ModelParams
from gptoss_local.engine.client import environment
from gptoss_local.engine.llama import Context, Model
from gptoss_local.engine.protocol import (
    LENGTH_BYTES,
    Close,
    Command,
    Event,
    Finished,
    Prefetch,
    Tokens,
    decode_event,
    encode_frame,
    write_frames,
)
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.process import Server
from gptoss_local.engine.worker.scheduler import StepTiming
from tests.engine.run import load_of, make_context, request

Put = Callable[[Command], None]
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
    """A pipe that takes only a part of each write."""

    def write(self, data: Any) -> int:
        return super().write(data[:5])


def test_a_pipe_that_takes_a_part_gets_the_rest() -> None:
    pipe = Full()
    events: list[Event] = [Tokens(1, [200006] * 9), Tokens(2, [72])]
    write_frames(pipe, events)
    assert pipe.getvalue() == b"".join(map(encode_frame, events))


def serve(
    bare_gguf: Path, commands: list[Command], prepare: Callable[[Engine, Put, Sent], None]
) -> Sent:
    """Let the main loop run until it is told to close."""
    model = Model(bare_gguf)
    context = make_context(model, n_ctx=512)
    engine, sent, waiting = Engine(context), Sent(context), queue.SimpleQueue[Command]()
    for command in commands:
        waiting.put(command)
    prepare(engine, waiting.put, sent)
    Server(engine, waiting, sent).serve()
    model.close()
    return sent


@pytest.mark.parametrize(
    ("timing", "sent_at"),
    [(StepTiming, [3, 4, 5, 6, 7, 8, 8]), (Aside, [4, 5, 6, 7, 8, 8, 8])],
)
def test_tokens_are_sent_in_order_and_none_stays(
    bare_gguf: Path,
    timing: type[StepTiming],
    sent_at: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gptoss_local.engine.worker.engine.StepTiming", timing)

    def close_at_the_end(engine: Engine, put: Put, _: Sent) -> None:
        finish = engine._finish
        monkeypatch.setattr(engine, "_finish", lambda *what: (put(Close()), finish(*what))[1])

    asked = request(1, PROMPT, stop_tokens=[], max_tokens=6)
    sent = serve(bare_gguf, [asked], close_at_the_end)
    events = [event for event, _ in sent.frames]
    assert [len(e.tokens) for e in events if isinstance(e, Tokens)] == [1] * 6
    assert isinstance(events[-1], Finished)
    assert [position for _, position in sent.frames] == sent_at


def test_an_end_does_not_wait_for_a_prefetch(
    bare_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptoss_local.engine.worker.engine.StepTiming", Aside)
    n_sent: list[int] = []

    def close_at_the_prefetch(engine: Engine, put: Put, sent: Sent) -> None:
        def prefetch() -> None:
            n_sent.append(len(sent.frames))
            put(Close())

        monkeypatch.setattr(engine._prefetcher, "step", prefetch)

    asked = request(1, PROMPT, stop_tokens=[], max_tokens=2)
    serve(bare_gguf, [asked, Prefetch("x", [200006, 1428, 5])], close_at_the_prefetch)
    assert n_sent == [3]


def test_half_a_frame_ends_the_process() -> None:
    """As a server leaves it that is killed while it writes."""
    half = encode_frame(load_of(Path("x")))[:-3]
    command = [sys.executable, "-m", "gptoss_local.engine.worker.start"]
    assert subprocess.run(command, input=half, capture_output=True, timeout=60).stdout == b""


def test_the_environment_of_a_process() -> None:
    """Threads stay awake only where they take turns with a GPU."""
    resident = load_of(Path("20b.gguf"))
    on_host = ModelParams(tensor_overrides=((r"blk\.0\.ffn_.*_exps", "CPU"),))
    in_turns = msgspec.structs.replace(resident, model=on_host, offload_min_batch=16)
    in_ram = msgspec.structs.replace(on_host, n_gpu_layers=0)
    asleep = environment(resident)["GOMP_SPINCOUNT"]
    assert int(environment(in_turns)["GOMP_SPINCOUNT"]) >= 300_000 > int(asleep)
    for other in ({"is_quiet": True}, {"model": in_ram}):
        load = msgspec.structs.replace(in_turns, **other)
        assert environment(load)["GOMP_SPINCOUNT"] == asleep
    assert "GGML_CUDA_GRAPH_OPT" not in environment(resident) | environment(in_turns)
    assert environment(in_turns)["GGML_OP_OFFLOAD_MIN_BATCH"] == "16"
    assert on_host.shares_experts
    assert not in_ram.shares_experts
    head = ModelParams(tensor_overrides=((r"^output\.weight$", "CUDA1"),))  # on the second GPU
    assert not head.shares_experts
