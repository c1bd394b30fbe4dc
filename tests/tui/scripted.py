"""Frames of `/api/chat` at a given speed, for measurements that no model should disturb."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from textual.highlight import highlight

from gptoss_local.api.client import AsyncClient
from gptoss_local.base.errors import UnauthorizedError
from tests.tui.wire import answer_of

_CODE = "    value = compute(index, offset)  # row\n" * 100
_SLEEP_S = 0.005
_WORK_S = 0.010  # for highlighting it, on the machine of the measurements


class ScriptedServer(AsyncClient):
    """Plays the same pieces of an answer to every question.

    Args:
        at_once: The beginning, sent as one frame.
        pieces: What follows, `per_s` of them a second.
        holds: An answer ends once the test sets `may_end`.
    """

    def __init__(
        self, at_once: str, pieces: Iterable[str], per_s: float, *, holds: bool = False
    ) -> None:
        self._at_once = at_once
        self._pieces = pieces
        self._per_s = per_s
        self.may_end = asyncio.Event()
        if not holds:
            self.may_end.set()
        self.bodies: list[dict[str, Any]] = []
        """What it was asked."""

    @property
    def asked(self) -> list[str]:
        """The last message of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        self.bodies.append(body)
        yield _frame(self._at_once)
        start_s = time.monotonic()
        for n, piece in enumerate(self._pieces):
            await asyncio.sleep(max(0.0, start_s + n / self._per_s - time.monotonic()))
            yield _frame(piece)
        await self.may_end.wait()
        yield _frame("", done=True)

    async def post(self, path: str, body: dict[str, Any], _answer_type: object) -> Any:
        if path == "/api/gptoss/tokens":
            raise UnauthorizedError("this is for the owner of the server")
        raise AssertionError(f"{path} is not asked of a script")

    async def get(self, path: str, _answer_type: object) -> Any:
        return answer_of(path)


def _frame(content: str, *, done: bool = False) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "done": done}


def seen() -> ScriptedServer:
    """Return one that answers quickly."""
    return ScriptedServer("Seen. ", [], 1000)


class Lag(NamedTuple):
    """Turns of the event loop, and fixed work that was done in between, in seconds of CPU time."""

    turns_s: list[float]
    works_s: list[float]

    @property
    def p95_s(self) -> float:
        """Return how long all but 5 % of keys would wait at most, on an idle machine.

        Keys come at any time, so a turn counts by its length. The fixed work takes `_WORK_S` on an
        idle machine. One that is slower at the moment, or lends its cores to other guests, which
        counts as CPU time, takes longer for both.
        """
        turns_s = sorted(self.turns_s)
        ends_s = list(accumulate(max(_SLEEP_S, turn_s) for turn_s in turns_s))
        p95_s = turns_s[bisect_left(ends_s, 0.95 * ends_s[-1])]
        work_s = sorted(self.works_s)[int(len(self.works_s) * 0.95)]
        return p95_s / max(1, work_s / _WORK_S)


async def measure_lag(stop: asyncio.Event) -> Lag:
    """Take this thread's CPU time between two turns of the event loop, until `stop` is set.

    That is how long a key waits on a machine with a free core. Wall time would measure what other
    processes do.
    """
    turns_s, works_s = list[float](), list[float]()
    while not stop.is_set():
        before_s = time.thread_time()
        await asyncio.sleep(_SLEEP_S)
        turns_s.append(time.thread_time() - before_s)
        if len(turns_s) % 16 == 0:
            works_s.append(_work())
    return Lag(turns_s, works_s)


def _work() -> float:
    """Highlight some code, as the chat does, and return the CPU time that it took."""
    start_s = time.thread_time()
    highlight(_CODE, language="python").split("\n")
    return time.thread_time() - start_s
