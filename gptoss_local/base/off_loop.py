"""Runs work that grows with a request outside the event loop, so that other requests never wait.

Large work runs one piece at a time: all but encoding holds Python's lock, so two would slow
everyone.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Check = Callable[[], None]
"""Called by work between its steps; raises when the result is no longer wanted."""

SMALL_BYTES = 32 * 1024
_MEDIUM_BYTES = 1024 * 1024  # a prompt of 131,072 tokens is rarely longer

# Threads start on first use. A prompt that fits never waits for one that is far too long.
_medium = ThreadPoolExecutor(1, "medium")
_large = ThreadPoolExecutor(1, "large")


class NotWantedError(Exception):
    """Ends a thread's work after its client has left. Users never see it."""


async def run_off_loop(work: Callable[[Check], T], n_bytes: int) -> T:
    """Run `work(check)` in a thread, in a line by its `n_bytes`; cancelling ends the work, too."""
    is_wanted = True

    def check() -> None:
        if not is_wanted:
            raise NotWantedError

    def run() -> T:
        check()
        return work(check)

    try:
        context = contextvars.copy_context()
        pool = None if n_bytes <= SMALL_BYTES else _medium if n_bytes <= _MEDIUM_BYTES else _large
        return await asyncio.get_running_loop().run_in_executor(pool, context.run, run)
    finally:
        is_wanted = False
