"""Frames of `/api/chat` at a given speed, for measurements that no model should disturb."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Any


class ScriptedServer:
    """Plays the same pieces of an answer to every question.

    Args:
        at_once: The beginning, sent as one frame.
        pieces: What follows, `per_s` of them a second.
    """

    def __init__(self, at_once: str, pieces: Iterable[str], per_s: float) -> None:
        self._at_once = at_once
        self._pieces = pieces
        self._per_s = per_s

    async def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        yield _frame(self._at_once)
        start_s = time.monotonic()
        for n, piece in enumerate(self._pieces):
            await asyncio.sleep(max(0.0, start_s + n / self._per_s - time.monotonic()))
            yield _frame(piece)
        yield _frame("", done=True)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"{path} is not asked of a script")

    async def get(self, path: str) -> dict[str, Any]:
        return {"models": []}


def _frame(content: str, *, done: bool = False) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "done": done}


async def measure_lag(stop: asyncio.Event) -> list[float]:
    """Seconds of this thread's CPU time between two turns of the event loop, until `stop` is set.

    That is how long a key waits on a machine with a free core. Wall time would measure what other
    processes do.
    """
    late = []
    while not stop.is_set():
        before_s = time.thread_time()
        await asyncio.sleep(0.005)
        late.append(time.thread_time() - before_s)
    return late


def percentile(values: list[float], percent: float) -> float:
    return sorted(values)[int(len(values) * percent / 100)]
