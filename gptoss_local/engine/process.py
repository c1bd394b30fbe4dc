"""Main loop of the engine process: `python -m gptoss_local.engine.process`.

Commands come in on stdin, events go out on stdout, llama.cpp's words go to stderr. The process
ends on the command Close, or when stdin does because the server is gone: its exit is what returns
all VRAM.
"""

import contextlib
import math
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from gptoss_local.engine import protocol
from gptoss_local.engine.engine import Engine
from gptoss_local.engine.mask import MaskCompiler
from gptoss_local.engine.prefix_store import PrefixStore
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
    Tuned,
    failure,
)
from gptoss_local.engine.read_ahead import read_ahead
from gptoss_local.engine.rehearsal import rehearse
from gptoss_local.engine.tuning import tune, tune_offload
from gptoss_local.errors import GptOssError
from gptoss_local.llama import Context, ContextParams, Model, ModelParams, has_gpu, library_version

_SAVE_S = 4.0  # the client kills a process that takes longer to exit


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a shared terminal is the server's
    events = _claim_stdout()
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
    load = commands.get()
    if isinstance(load, Close):
        return 0
    if not isinstance(load, Load):
        raise ValueError(f"the first command must be Load, not {type(load).__name__}")
    try:
        model, params = _load(load, events)
        if load.tunes != "nothing":
            _send(events, [_tune(load, model, params)])
            return 0
        engine, loaded = _make_engine(load, model, params)
        _send(events, [loaded])
    except GptOssError as error:
        _send(events, [failure(error, None)])
        return error.exit_code
    with contextlib.suppress(_Closed):
        _serve(engine, commands, events)
    if engine.archive:
        engine.archive.close()
    return 0


def _serve(engine: Engine, commands: queue.SimpleQueue[Command], stream: BinaryIO) -> None:
    """Take commands and step, until Close.

    PERF: while a device computes tokens, it does not wait until those of the step before are sent:
    that happens as soon as it has the next batch.
    """
    events: list[Event] = []

    def send() -> None:
        _send(stream, events)
        events.clear()

    while True:
        if not (engine.timing.computes_aside and engine.has_work):
            send()
        events += _take_commands(engine, commands)
        if not engine.timing.computes_aside:
            send()
        events += engine.step(send)


class _Closed(Exception):
    """The server wants the process to end."""


def _claim_stdout() -> BinaryIO:
    """Keep stdout for frames alone: whatever else prints there goes to stderr from now on."""
    frames = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return frames


def _read_commands(commands: queue.SimpleQueue[Command]) -> None:
    """Thread: the only reader of stdin, whose end ends the process, also amid a decode."""
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


def _load(load: Load, events: BinaryIO) -> tuple[Model, ContextParams]:
    """Read the weights, and say of what context over them is asked."""
    path = Path(load.model_path)
    model_params = ModelParams(
        n_gpu_layers=load.n_gpu_layers,
        devices=load.devices,
        tensor_split=load.tensor_split,
        tensor_overrides=load.tensor_overrides,
        load_mode=load.load_mode,
        repack=load.repack,
    )
    params = ContextParams(
        n_ctx=load.n_ctx,
        n_threads_prefill=load.n_threads_prefill,
        n_threads_decode=load.n_threads_decode,
        n_seq_max=load.n_seq,
        n_batch=load.n_batch,
        n_outputs_max=load.n_seq + load.n_draft_max,
        n_outputs_max_per_seq=1 + load.n_draft_max,
        type_k=load.cache_type,
        type_v=load.cache_type,
    )
    if load.budget_bytes:
        rehearse(path, model_params, params, load.budget_bytes)

    def report(fraction: float) -> None:
        _send(events, [Loading(fraction)])

    read = 0.0 if load.load_mode in ("none", "direct_io") else read_ahead(path, report)
    model = Model(path, model_params, on_progress=lambda part: report(read + (1 - read) * part))
    return model, params


def _uses_gpu(load: Load) -> bool:
    return has_gpu() and load.n_gpu_layers != 0


def _samples_on_device(load: Load) -> bool:
    return _uses_gpu(load) if load.backend_sampling is None else load.backend_sampling


def _tune(load: Load, model: Model, params: ContextParams) -> Tuned:
    if load.tunes == "offload":
        return tune_offload(model, params)
    has_host_experts = _uses_gpu(load) and load.shares_experts
    on_device = _samples_on_device(load)
    return tune(model, params, backend_sampling=on_device, has_host_experts=has_host_experts)


def _make_engine(load: Load, model: Model, params: ContextParams) -> tuple[Engine, Loaded]:
    context = Context(model, params)
    buffer_bytes: Counter[str] = Counter()
    for buffer in model.buffers + context.buffers:
        buffer_bytes[buffer.place] += buffer.n_bytes
    engine = Engine(
        context,
        MaskCompiler(Path(load.model_path)),
        backend_sampling=_samples_on_device(load),
        checkpoint_bytes=load.checkpoint_bytes,
        boundary_tokens=load.boundary_tokens,
        store=_open_store(load, context),
        save_after_s=load.prefix_save_s,
        keep_s=load.prefix_keep_s,
        step_costs=load.step_costs,
        prompt_step_s=_prompt_step_s(load, model),
    )
    loaded = Loaded(
        n_ctx=context.n_ctx,
        n_ctx_train=model.n_ctx_train,
        n_vocab=model.n_vocab,
        size_bytes=model.size_bytes,
        has_gpu=_uses_gpu(load),
        n_seq=context.n_seq_max,
        buffer_bytes=dict(buffer_bytes),
        step_costs=engine.step_costs.times() if load.n_draft_max else None,
    )
    return engine, loaded


def _prompt_step_s(load: Load, model: Model) -> float:
    """What a step of prompts alone may take.

    A cancel, which waits for two of them, shall take half a second where a GPU has the whole model.
    With weights on the host, a whole batch is so much faster than parts of it that it may wait.
    PERF: H200, 20b, 40,960 tokens: 3.99 s in steps of 75 ms, 3.80 in whole batches of 1,024, which
    take 70 to 100 ms; behind as many of others 6.49 and 5.73, with batches of up to 150 ms.
    """
    has_all_layers = load.n_gpu_layers < 0 or load.n_gpu_layers > model.n_layers
    is_resident = has_gpu() and has_all_layers and not load.shares_experts
    return 0.25 if is_resident else math.inf


def _open_store(load: Load, context: Context) -> PrefixStore | None:
    """Saved prefixes of this very model, library and cache; None if there shall be none."""
    if load.prefix_dir is None or load.prefix_disk_bytes == 0:
        return None
    facts = (load.model_digest, library_version(), load.cache_type, context.n_swa, context.n_vocab)
    return PrefixStore(Path(load.prefix_dir), repr(facts), load.prefix_disk_bytes)


def _take_commands(engine: Engine, commands: queue.SimpleQueue[Command]) -> list[Event]:
    """Hand over all commands that have arrived; wait for one as long as there is nothing to do.

    All of them before the next step: what a later one cancels shall not take part in it.
    """
    events: list[Event] = []
    while command := _next_command(engine, commands, waits=not events):
        match command:
            case Generate() as request:
                events += engine.add_request(request)
            case Cancel(seq_id):
                events += engine.cancel(seq_id)
            case Prefetch() as request:
                engine.prefetch(request)
            case GetStats():
                events.append(engine.stats())
            case Load():
                raise ValueError("a process loads one model")
            case Close():
                raise _Closed
    return events


def _next_command(
    engine: Engine, commands: queue.SimpleQueue[Command], *, waits: bool
) -> Command | None:
    """Wait for a command while there is nothing to do, but for what could wait until then."""
    while waits and not engine.has_work:  # answer before waiting again
        with contextlib.suppress(queue.Empty):
            return commands.get(timeout=engine.rest_s())
        engine.rest()
    with contextlib.suppress(queue.Empty):
        return commands.get_nowait()
    return None


def _send(stream: BinaryIO, events: list[Event]) -> None:
    if events:
        frames = b"".join(map(protocol.encode_frame, events))
        n_sent = stream.write(frames)
        while n_sent < len(frames):  # NOTE: of a full pipe, when the process is stopped (Ctrl-Z)
            n_sent += stream.write(frames[n_sent:])


if __name__ == "__main__":
    os._exit(main())  # the reader thread holds stdin, and a normal exit would trip over it
