"""Pass on what a process writes to stderr, and keep the last of it for the error."""

import asyncio
import contextlib
import re
import sys
import time
from collections import deque

_RECENT_S = 3.0
_KEPT_BYTES = 2**16
_MAX_LENGTH = 200
_REASON = re.compile(r"error|assert|abort|fatal|failed|cannot|illegal|out of memory", re.I)


class LastWords:
    """Copies one process' stderr to ours.

    Args:
        stream: Its end of the pipe.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._copying = asyncio.create_task(self._copy())

    async def reason(self, *, is_signal: bool) -> str:
        """Return the first line that says what went wrong, once the process is dead; or nothing.

        Args:
            is_signal: A signal ended it. Then seconds may have passed since its last words, in
                which the system stored its memory.
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
