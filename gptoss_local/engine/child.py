"""The environment of an engine process, and its stderr, kept for the error if it dies."""

import asyncio
import contextlib
import re
import sys
import time
from collections import deque

from gptoss_local.engine.protocol import Load

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
