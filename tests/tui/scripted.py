"""A server of the chat that plays a test's script, and a measure of how long keys wait."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from textual.highlight import highlight

from gptoss_local.api.answers import ChatFrame
from gptoss_local.api.client import AsyncClient
from gptoss_local.api.gptoss import GpuMemory, Inspection, ModelFit, ModelFits, ServerStatus
from gptoss_local.api.models import (
    InstalledModel,
    InstalledModels,
    LoadStatus,
    ModelDetails,
    RunningModel,
    RunningModels,
)
from gptoss_local.base.errors import UnauthorizedError
from gptoss_local.base.events import ChatEvent, ContentDelta, Done, ToolCall
from gptoss_local.base.types import Usage

_CODE = "    value = compute(index, offset)  # row\n" * 100
_SLEEP_S = 0.005
_WORK_S = 0.010  # for highlighting it, on the machine of the measurements


def installed(name: str, size: int = 1, parameter_size: str = "") -> InstalledModel:
    details = ModelDetails(
        parent_model="",
        format="gguf",
        family="gptoss",
        families=["gptoss"],
        parameter_size=parameter_size,
        quantization_level="MXFP4",
    )
    return InstalledModel(name, name, "", size, "", details, [])


def running(name: str, n_ctx: int, size: int = 1, size_vram: int = 0) -> RunningModel:
    return RunningModel(name, name, size, "", installed(name).details, "", size_vram, n_ctx)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(0, "", name, arguments)


def chat_frame(**fields: Any) -> ChatFrame:
    """A frame of `/api/chat`, of which only some fields count."""
    message = {"role": "assistant", "content": ""} | fields.pop("message", {})
    frame = {"model": "", "created_at": "", "done": False, "message": message, **fields}
    return msgspec.convert(frame, ChatFrame)


class ScriptedServer(AsyncClient):
    """Plays the same pieces of an answer to every question.

    Args:
        at_once: The beginning, sent as one frame.
        pieces: The rest, `per_s` of them a second.
        holds: An answer ends once the test sets `may_end`.
        before: Answers to the first requests: calls of tools, or a text in single letters.
        tags, loaded, fits, gpus, loading: Its models and its machine.
    """

    def __init__(
        self,
        at_once: str = "Seen. ",
        pieces: Iterable[str] = (),
        per_s: float = 1000.0,
        *,
        holds: bool = False,
        before: Iterable[Sequence[ToolCall] | str] = (),
        tags: Sequence[InstalledModel] = (),
        loaded: Sequence[RunningModel] = (),
        fits: Sequence[ModelFit] = (),
        gpus: Sequence[GpuMemory] = (),
        loading: Sequence[LoadStatus] = (),
    ) -> None:
        self._at_once, self._pieces, self._per_s = at_once, pieces, per_s
        self._before = list(before)
        self.tags, self.loaded, self.fits = list(tags), list(loaded), list(fits)
        self._status = ServerStatus("", 1, 0.0, list(loading), "", list(gpus))
        self.may_end = asyncio.Event()
        if not holds:
            self.may_end.set()
        self.bodies: list[dict[str, Any]] = []
        """The requests that it got."""

    @property
    def asked(self) -> list[str]:
        """The last message of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[ChatEvent, None]:
        self.bodies.append(body)
        if self._before:
            first = self._before.pop(0)
            for n, part in enumerate(first):
                is_call = isinstance(part, ToolCall)
                yield replace(part, index=n) if is_call else ContentDelta(part)
                await asyncio.sleep(0)
        else:
            yield ContentDelta(self._at_once)
            start_s = time.monotonic()
            for n, piece in enumerate(self._pieces):
                await asyncio.sleep(max(0.0, start_s + n / self._per_s - time.monotonic()))
                yield ContentDelta(piece)
            await self.may_end.wait()
        yield Done("stop", Usage(0, 0, 0, 0), [])

    async def post(self, path: str, body: dict[str, Any], _answer_type: object) -> Any:
        if path == "/api/gptoss/tokens":
            raise UnauthorizedError("this is for the owner of the server")
        if path == "/api/gptoss/inspect":
            return Inspection(1, 1, [])
        raise AssertionError(f"{path} is not asked of a script")

    async def get(self, path: str, _answer_type: object) -> Any:
        return {
            "/api/tags": InstalledModels(self.tags),
            "/api/ps": RunningModels(self.loaded),
            "/api/gptoss/fits": ModelFits(self.fits),
            "/api/gptoss/status": self._status,
        }[path.partition("?")[0]]


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

    That is how long a key waits on a machine with a free core. Wall time would include other
    processes.
    """
    turns_s, works_s = list[float](), list[float]()
    while not stop.is_set():
        before_s = time.thread_time()
        await asyncio.sleep(_SLEEP_S)
        turns_s.append(time.thread_time() - before_s)
        if len(turns_s) % 16 == 0:
            start_s = time.thread_time()
            highlight(_CODE, language="python").split("\n")  # as the chat does
            works_s.append(time.thread_time() - start_s)
    return Lag(turns_s, works_s)
