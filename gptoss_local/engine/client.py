"""The asyncio client of an engine process, which survives its death. Thread: one event loop."""

import asyncio
import contextlib
import itertools
import re
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Literal, TypeVar

import msgspec

from gptoss_local.base.errors import EngineCrashedError, GptOssError, error_by_name
from gptoss_local.base.settings import environment_without_secrets
from gptoss_local.engine import protocol
from gptoss_local.engine.interface import cache_salt, caller
from gptoss_local.engine.protocol import (
    BlocksChanged,
    Cancel,
    Close,
    Command,
    Event,
    Failed,
    Finished,
    Generate,
    GetStats,
    Load,
    Loaded,
    Loading,
    Prefetch,
    Prefilled,
    ReportBlocks,
    Stats,
    Tokens,
    Tuned,
)

# llama.cpp's CPU threads (OpenMP) spin while they wait for each other. As soon as another program
# needs one of the cores, a spinning thread takes the time of a thread that all others wait for.
# PERF: nano, 2 threads on 2 cores next to a busy loop: 435 ms a token as it is, 15 ms with this;
# undisturbed 4.5 ms either way. Sleeping immediately (0) costs 11 ms undisturbed. On a later kernel
# next to one such loop 12 ms with 1,000 and 30,000 spins, next to two 17 and, at times, 30.
#
# NOTE: not GGML_CUDA_GRAPH_OPT, though llama-bench is 6 % faster with it. It computes Q, K and V of
# a single token side by side, and ggml's allocator has the rotated K written over the input that
# the others still read: now and then a token is drawn from wrong logits (docs/design/engine.md).
_ALONE = {"GOMP_SPINCOUNT": "1000"}

# Where CPU and GPU take turns in every layer, the threads are not to sleep during the GPU's.
# PERF: H200, 16 cores, 20b, experts of 5 layers in RAM, over HTTP, twice: 10.1 and 11.9 ms a token
# with 30,000 spins, 8.3 and 9.5 with the 300,000 that OpenMP has by itself, 8.3 and 8.4 with
# 3,000,000; they sleep 42, 0.3 and 0.1 times a token.
_IN_TURNS = {"GOMP_SPINCOUNT": "300000"}


_RECENT_S = 3.0
_KEPT_BYTES = 2**16
_MAX_LENGTH = 200
_REASON = re.compile(r"error|assert|abort|fatal|failed|cannot|illegal|out of memory", re.I)


def environment(load: Load) -> dict[str, str]:
    """Return the variables for a process with this load; the user's own take precedence.

    GPUs are numbered as in the driver, whose figures plans are made from.
    """
    takes_turns = load.model.tensor_overrides and load.model.n_gpu_layers != 0
    return (_IN_TURNS if takes_turns and not load.is_quiet else _ALONE) | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GGML_OP_OFFLOAD_MIN_BATCH": str(load.offload_min_batch),
        "GGML_NO_BACKTRACE": "1",  # a debugger would take half a minute, and hide the reason
    }


class LastWords:
    """Copies one process' stderr to ours."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._copying = asyncio.create_task(self._copy())

    async def reason(self, *, is_signal: bool) -> str:
        """Return the first line that names the fault, once the process is dead; or nothing.

        After a signal, the last words may be seconds old, as the system stored the memory first.
        """
        with contextlib.suppress(TimeoutError):  # a child of it may hold the pipe
            await asyncio.wait_for(asyncio.shield(self._copying), 1.0)
        end_s = self._chunks[-1][0] if is_signal and self._chunks else time.monotonic()
        since_s = end_s - _RECENT_S
        text = b"".join(chunk for at_s, chunk in self._chunks if at_s >= since_s)
        lines = (line.strip() for line in text.decode(errors="replace").splitlines())
        return next((line[:_MAX_LENGTH] for line in lines if _REASON.search(line)), "")

    async def _copy(self) -> None:
        n_kept_bytes = 0
        while chunk := await self._stream.read(_KEPT_BYTES):
            self._chunks.append((time.monotonic(), chunk))
            n_kept_bytes += len(chunk)
            while n_kept_bytes > _KEPT_BYTES:  # not so many chunks: a traceback comes word by word
                n_kept_bytes -= len(self._chunks.popleft()[1])
            with contextlib.suppress(OSError, ValueError):  # ours is closed
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()


EventT = TypeVar("EventT", Loaded, Tuned)

_EXIT_TIMEOUT_S = 5.0
_KILLED = 9  # SIGKILL, which Windows does not name
_WORKER = "gptoss_local.engine.worker.start"
_HINT_CRASHED = "The next request starts it again. If it repeats, `gptoss doctor` says what to do."
_HINT_KILLED = "The system does so when RAM runs out; close other programs. " + _HINT_CRASHED


class EngineClient:
    """One engine process with one loaded model. Make it with `start()`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None  # all three are pipes
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._last_words = LastWords(process.stderr)
        self._seq_ids = itertools.count(1)
        self._sequences: dict[int, asyncio.Queue[Event | GptOssError]] = {}
        self.unread: set[int] = set()  # complete sequences with unread events
        self._stats: deque[asyncio.Future[Stats]] = deque()
        self._crash: GptOssError | None = None
        self.is_closed = False  # `close` ended the process while it was alive
        self.on_crash: Callable[[GptOssError], None] | None = None
        """Called once when the process ends unasked, though not by SIGTERM."""
        self._on_blocks: Callable[[BlocksChanged], None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self.loaded: Loaded

    @classmethod
    async def start(
        cls, load: Load, *, on_progress: Callable[[float], None] | None = None
    ) -> "EngineClient":
        """Start a process and load a model. `on_progress` gets 0.0 .. 1.0."""
        client, loaded = await cls._spawn(load, Loaded, on_progress)
        client.loaded = loaded
        client._reader = asyncio.create_task(client._read_events())
        return client

    @classmethod
    async def tune(
        cls,
        load: Load,
        *,
        what: Literal["all", "offload"] = "all",
        on_progress: Callable[[float], None] | None = None,
    ) -> Tuned:
        """Measure a model in a process of its own, which ends with it. `what`: see `Load.tunes`."""
        tunes = msgspec.structs.replace(load, tunes=what, offload_min_batch=1)
        client, tuned = await cls._spawn(tunes, Tuned, on_progress)
        await client.close()
        return tuned

    @classmethod
    async def _spawn(
        cls, load: Load, wanted: type[EventT], on_progress: Callable[[float], None] | None
    ) -> tuple["EngineClient", EventT]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _WORKER),  # -P: not from the current directory
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(load) | environment_without_secrets(),
        )
        client = cls(process)
        try:
            client._send(load)
            while not isinstance(event := await client._read_event(), wanted):
                if isinstance(event, Loading) and on_progress is not None:
                    on_progress(event.fraction)
            return client, event
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()  # it has nothing to save, and may be in a long read
            await client.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._crash is None and self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def n_active(self) -> int:
        return len(self._sequences)

    async def generate(
        self, request: Generate
    ) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        """Queue a sequence and yield its events, Finished last; closing the iterator cancels it."""
        if self._crash is not None:
            raise self._crash
        seq_id = next(self._seq_ids)
        queue: asyncio.Queue[Event | GptOssError] = asyncio.Queue()
        self._sequences[seq_id] = queue
        # Wide steps round differently from narrow ones, and a seed promises the same answer.
        drafts = request.sampling.seed is None
        command = msgspec.structs.replace(
            request, seq_id=seq_id, drafts=drafts, caller=caller.get(), salt=cache_salt.get()
        )
        is_over = False
        try:
            self._send(command)
            while not is_over:
                event = await queue.get()
                is_over = not isinstance(event, Prefilled | Tokens)
                if isinstance(event, GptOssError):
                    raise event
                if isinstance(event, Prefilled | Tokens | Finished):
                    yield event
        finally:
            del self._sequences[seq_id]
            self.unread.discard(seq_id)
            if not is_over:
                self.cancel(seq_id)

    def cancel(self, seq_id: int) -> None:
        if self.is_alive:
            self._send(Cancel(seq_id))

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        if self.is_alive:
            self._send(Prefetch(lineage, tokens, in_memory, cache_salt.get()))

    def report_blocks(
        self, n_block_tokens: int, on_change: Callable[[BlocksChanged], None]
    ) -> None:
        self._on_blocks = on_change
        if self.is_alive:
            self._send(ReportBlocks(n_block_tokens))

    async def stats(self) -> Stats:
        if self._crash is not None:
            raise self._crash
        answer: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._stats.append(answer)
        self._send(GetStats())
        return await answer

    async def close(self) -> None:
        """End the process once it has saved prefixes; answers end with EngineCrashedError."""
        self.is_closed = self.is_alive
        self._crash = self._crash or EngineCrashedError("the model was unloaded")
        if self._process.returncode is None:
            self._send(Close())
            self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _EXIT_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            with contextlib.suppress(TimeoutError):  # a lost GPU may hold it in the kernel
                await asyncio.wait_for(self._process.wait(), _EXIT_TIMEOUT_S)
        if self._reader is not None:
            await self._reader

    def _send(self, command: Command) -> None:
        if not self._stdin.is_closing():  # an ending process closes its pipe first
            self._stdin.write(protocol.encode_frame(command))

    async def _read_event(self) -> Event:
        try:
            header = await self._stdout.readexactly(protocol.LENGTH_BYTES)
            body = await self._stdout.readexactly(int.from_bytes(header, "little"))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise await self._death() from error
        try:
            event = protocol.decode_event(body)
        except msgspec.DecodeError as error:  # the next frame could begin anywhere
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            message = f"the model runner sent something that is not a frame: {error}"
            raise EngineCrashedError(message, hint=_HINT_CRASHED) from error
        if isinstance(event, Failed) and event.seq_id is None:
            raise _error(event)
        return event

    async def _death(self) -> EngineCrashedError:
        code = await self._process.wait()
        what = f"signal {-code}" if code < 0 else f"exit code {code}"
        was_killed = code == -_KILLED
        reason = "" if was_killed else await self._last_words.reason(is_signal=code < 0)
        return EngineCrashedError(
            f"the model runner stopped unexpectedly ({what}){f': {reason}' if reason else ''}",
            hint=_HINT_KILLED if was_killed else _HINT_CRASHED,
            was_killed=was_killed,
        )

    async def _read_events(self) -> None:
        try:
            while True:
                self._take(await self._read_event())
        except GptOssError as crash:
            was_told = self._process.returncode == -signal.SIGTERM  # as by an installer
            if self._crash is None and self.on_crash is not None and not was_told:
                self.on_crash(crash)
            self._crash = self._crash or crash
            for queue in self._sequences.values():
                queue.put_nowait(self._crash)
            for answer in self._stats:
                if not answer.done():
                    answer.set_exception(self._crash)

    def _take(self, event: Event) -> None:
        if isinstance(event, Stats):
            answer = self._stats.popleft()
            if not answer.done():  # its caller is gone
                answer.set_result(event)
        elif isinstance(event, BlocksChanged):
            if self._on_blocks is not None:
                self._on_blocks(event)
        elif isinstance(event, Prefilled | Tokens | Finished | Failed):
            queue = self._sequences.get(event.seq_id or 0)
            if queue is None:
                return
            if isinstance(event, Finished | Failed):
                self.unread.add(event.seq_id or 0)
            queue.put_nowait(_error(event) if isinstance(event, Failed) else event)


def _error(failed: Failed) -> GptOssError:
    return error_by_name(failed.error, failed.message, hint=failed.hint)
