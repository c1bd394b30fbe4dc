"""Main loop of the engine process: commands on stdin, events on stdout, llama.cpp's log on stderr.

It ends on Close, or with stdin if the server has died; its exit returns all VRAM.
"""

import contextlib
import math
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec
import psutil

from gptoss_local.base.errors import EngineCrashedError, ModelLoadError
from gptoss_local.base.formats.gguf_file import split_files
from gptoss_local.engine import protocol
from gptoss_local.engine.llama import Context, Model, has_gpu
from gptoss_local.engine.protocol import (
    Cancel,
    Close,
    Command,
    Event,
    Generate,
    GetStats,
    Load,
    Loaded,
    Loading,
    Prefetch,
    ReportBlocks,
    Tuned,
    failure,
    write_frames,
)
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sampling.mask import MaskCompiler
from gptoss_local.engine.worker.tuning import tune, tune_offload

_SAVE_S = 4.0  # the client kills a process that takes longer to exit
_HANG_S, _HANG_TIMES = 60.0, 20  # both must have passed; the second in times of the longest step
_HANG_UNKNOWN_S = 1800.0  # the first step may read all weights from a slow disk
_MIB = 2**20
_BLOCK_BYTES = 8 * 2**20
_N_READS = 8  # at a time
_SHARE = 0.9  # of a load from a cold disk; the rest is llama.cpp's work


def run(events: BinaryIO) -> int:
    """Load the first command's model, serve it until the last one, and return the exit code."""
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    load = commands.get()
    if isinstance(load, Close):
        return 0
    assert isinstance(load, Load)
    model = _load(load, events)
    if load.tunes != "nothing":
        write_frames(events, [_tune(load, model)])
        return 0
    engine, loaded = _make_engine(load, model)
    write_frames(events, [loaded])
    Server(engine, commands, events).serve()
    if engine.archive:
        engine.archive.close()
    return 0


class Watch:
    """Notices a step that takes far longer than any before: a lost GPU may never answer.

    `n_tokens` returns the tokens of the present step, 0 between steps. A thread calls `on_hang`
    with its seconds.
    """

    def __init__(
        self,
        n_tokens: Callable[[], int],
        on_hang: Callable[[float], None],
        *,
        least_s: float = _HANG_S,
        unknown_s: float = _HANG_UNKNOWN_S,
        tick_s: float = 1.0,
    ) -> None:
        self._n_tokens, self._on_hang = n_tokens, on_hang
        self._least_s, self._unknown_s, self._tick_s = least_s, unknown_s, tick_s
        self._longest_s: dict[int, float] = {}  # by the number of binary digits of the tokens
        self._is_in_step, self._n_ticks = False, 0
        threading.Thread(target=self._look, daemon=True).start()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self._n_ticks, self._is_in_step, begun_s = 0, True, time.monotonic()
        try:
            yield
        finally:
            self._is_in_step = False
            size = self._n_tokens().bit_length()
            self._longest_s[size] = max(self._longest_s.get(size, 0.0), time.monotonic() - begun_s)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        was_in_step, self._is_in_step = self._is_in_step, False
        try:
            yield
        finally:
            self._is_in_step = was_in_step
            self._n_ticks = 0

    def _look(self) -> None:
        """Thread: count ticks, as a machine that sleeps in a step does not hang."""
        while True:
            time.sleep(self._tick_s)
            self._n_ticks += 1
            seconds = self._n_ticks * self._tick_s
            if self._is_in_step and seconds > self._limit_s(self._n_tokens().bit_length()):
                self._on_hang(seconds)
                return

    def _limit_s(self, size: int) -> float:
        """Assume that a size not seen before takes as long as its tokens one after the other."""
        known_s = self._longest_s.copy()
        others = [s * 2.0 ** max(0, size - other) for other, s in known_s.items() if other]
        if not size or not others:
            return self._unknown_s
        return max(self._least_s, _HANG_TIMES * known_s.get(size, max(others)))


class Server:
    """Takes commands and steps, until Close.

    PERF: earlier tokens are sent while the device computes, once it has the next batch.
    """

    def __init__(
        self, engine: Engine, commands: queue.SimpleQueue[Command], stream: BinaryIO
    ) -> None:
        self._engine, self._commands, self._stream = engine, commands, stream
        self._events: list[Event] = []
        self._watch = Watch(lambda: engine.timing.n_tokens, self._end_hanging)

    def serve(self) -> None:
        engine, timing = self._engine, self._engine.timing
        while True:
            if not (timing.computes_aside and engine.has_work):
                self._send()
            if not self._take_commands():
                return
            if not timing.computes_aside:
                self._send()
            with self._watch.step():
                self._events += engine.step(self._send)
            self._events += engine.block_changes()

    def _take_commands(self) -> bool:
        """Hand over all commands before the next step; return False after Close."""
        engine = self._engine
        while command := self._next_command():
            match command:
                case Generate() as request:
                    self._events += engine.add_request(request)
                case Cancel(seq_id):
                    self._events += engine.cancel(seq_id)
                case Prefetch() as request:
                    engine.prefetch(request)
                case ReportBlocks(n_block_tokens):
                    engine.report_blocks(n_block_tokens)
                case GetStats():
                    self._events.append(engine.stats())
                case Close():
                    return False
        return True

    def _next_command(self) -> Command | None:
        """Return the next command; wait for one while there is nothing to do or to send."""
        while not self._events and not self._engine.has_work:
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=self._engine.rest_s())
            with self._watch.step():
                self._engine.rest()
            self._events += self._engine.block_changes()
            self._send()
        with contextlib.suppress(queue.Empty):
            return self._commands.get_nowait()
        return None

    def _send(self) -> None:
        with self._watch.pause():  # the server may be stopped, and its pipe full
            write_frames(self._stream, self._events)
        self._events.clear()

    def _end_hanging(self, seconds: float) -> None:
        message = f"the model runner was stopped: a step hangs, and has taken {seconds:.0f} s"
        hint = "The GPU or its driver may be lost: `gptoss doctor` says what to do."
        write_frames(self._stream, [failure(EngineCrashedError(message, hint=hint), None)])
        os._exit(EngineCrashedError.exit_code)


def _read_commands(commands: queue.SimpleQueue[Command]) -> None:
    """Thread: the only reader of stdin. Its end ends the process, even during a decode."""
    stdin = sys.stdin.buffer
    try:
        while header := stdin.read(protocol.LENGTH_BYTES):
            body = stdin.read(int.from_bytes(header, "little"))
            command = protocol.decode_command(body)
            commands.put(command)
            if isinstance(command, Close):
                time.sleep(_SAVE_S)  # the main thread exits when it has saved
    finally:  # also when a dying server leaves half a frame
        os._exit(0)


def _load(load: Load, events: BinaryIO) -> Model:
    path = Path(load.model_path)
    if load.budget_bytes:
        rehearse(load)

    def report(fraction: float) -> None:
        write_frames(events, [Loading(fraction)])

    read = 0.0 if load.model.load_mode in ("none", "direct_io") else read_ahead(path, report)
    return Model(
        path,
        load.model,
        adapter=Path(load.adapter_path) if load.adapter_path else None,
        on_progress=lambda part: report(read + (1 - read) * part),
    )


def _uses_gpu(load: Load) -> bool:
    return has_gpu() and load.model.n_gpu_layers != 0


def _tune(load: Load, model: Model) -> Tuned:
    if load.tunes == "offload":
        return tune_offload(model, load.context)
    uses_gpu = _uses_gpu(load)
    has_host_experts = uses_gpu and load.model.shares_experts
    return tune(model, load.context, backend_sampling=uses_gpu, has_host_experts=has_host_experts)


def _make_engine(load: Load, model: Model) -> tuple[Engine, Loaded]:
    context = Context(model, load.context)
    buffer_bytes: Counter[str] = Counter()
    for buffer in model.buffers + context.buffers:
        buffer_bytes[buffer.place] += buffer.n_bytes
    engine = Engine(
        context,
        MaskCompiler(Path(load.model_path)),
        load.prefixes,
        backend_sampling=_uses_gpu(load),
        step_costs=load.step_costs,
        prompt_step_s=_prompt_step_s(load, model),
    )
    loaded = Loaded(
        n_ctx=context.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.n_vocab,
        size_bytes=model.size_bytes,
        n_params=model.n_params,
        description=model.description,
        has_gpu=_uses_gpu(load),
        n_seq=context.n_seq_max,
        buffer_bytes=dict(buffer_bytes),
        step_costs=engine.step_costs.times(),
    )
    return engine, loaded


def _prompt_step_s(load: Load, model: Model) -> float:
    """Return the most seconds of a step of prompts alone, as a cancel waits for two.

    With weights on the host, whole batches are so much faster that a cancel may wait. PERF: H200,
    20b, 40,960 tokens: 3.99 s in steps of 75 ms, 3.80 in whole batches of 1,024.
    """
    n_gpu_layers = load.model.n_gpu_layers
    has_all_layers = n_gpu_layers < 0 or n_gpu_layers > model.n_layers
    is_resident = has_gpu() and has_all_layers and not load.model.shares_experts
    return 0.25 if is_resident else math.inf


def rehearse(load: Load) -> None:
    """Raise ModelLoadError, before weights are read, if the graph exceeds the plan of a place."""
    params = msgspec.structs.replace(load.model, load_mode="none", no_alloc=True)
    model = Model(Path(load.model_path), params)
    buffers = Context(model, load.context).buffers
    model.close()
    for buffer in buffers:
        planned = load.budget_bytes.get(buffer.place, buffer.n_bytes)
        if buffer.purpose == "compute" and buffer.n_bytes > planned:
            raise ModelLoadError(
                f"llama.cpp would allocate {buffer.n_bytes / _MIB:.0f} MiB for its graph on "
                f"{buffer.place}, where {planned / _MIB:.0f} MiB were planned",
                hint="GPTOSS_VRAM leaves more room free.",
            )


def read_ahead(path: Path, on_progress: Callable[[float], None]) -> float:
    """Read the blocks that the page cache lacks, unless RAM could not hold them.

    `path` is the model or its first file. `on_progress` gets the finished part of the load, from
    0.0 up to the result, which is 0.0 if nothing was missing or it is unknown. Raises
    ModelLoadError if the disk cannot be read, which would kill the process in mapped memory.
    """
    files, share, n_read = split_files(path), 0.0, 0
    try:
        n_all = sum(file.stat().st_size for file in files)
        if not hasattr(os, "RWF_NOWAIT") or n_all > psutil.virtual_memory().total:
            return 0.0
        for file in files:
            for n_bytes in filter(None, _read_cold(file)):
                n_read += n_bytes
                share = _SHARE * n_read / n_all
                on_progress(share)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
    return share


def _read_cold(file: Path) -> Iterator[int]:
    """Read all blocks that are not in the page cache, the last first; yield the bytes of each.

    Where RAM is short the first ones stay, of layers whose experts the planner leaves on the host.
    """
    descriptor = os.open(file, os.O_RDONLY)
    size = os.fstat(descriptor).st_size

    def read(start: int) -> int:
        if _is_cached(descriptor, min(start + _BLOCK_BYTES, size) - 1):
            return 0
        return len(os.pread(descriptor, _BLOCK_BYTES, start))

    try:
        with ThreadPoolExecutor(_N_READS) as pool:
            yield from pool.map(read, reversed(range(0, size, _BLOCK_BYTES)))
    finally:
        os.close(descriptor)


def _is_cached(descriptor: int, last: int) -> bool:
    """Test a block's last byte. NOTE: the system then reads around it, so ask once."""
    try:
        os.preadv(descriptor, [bytearray(1)], last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # EOPNOTSUPP: this file system does not say
        return True
    return True
