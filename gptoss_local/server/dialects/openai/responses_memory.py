"""Remembers tools that run for `/v1/responses`, with calls and results that items cannot hold.

In bounded memory, in one event loop; other threads may look up calls.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import ResponseNotFoundError
from gptoss_local.base.fair_store import FairStore
from gptoss_local.harmony import ToolRequest
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.talk.tools import Page, RunnableTool
from gptoss_local.talk.tools import Toolbox as ServerToolbox

MAX_BYTES = 64 * 1024 * 1024
_OVERHEAD_BYTES = 1024  # of a record, about, besides its JSON

WireItem = dict[str, Any]


class _Record(msgspec.Struct, frozen=True):
    """The conversation up to the answer and the response object, both as JSON."""

    items: bytes
    response: bytes
    output_ids: tuple[str, ...]


class ResponseStore:
    """Responses by owner and id; one larger than `max_bytes` is not kept."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._records = FairStore[_Record](
            max_bytes, lambda kept: len(kept.items) + len(kept.response) + _OVERHEAD_BYTES
        )
        self._response_ids: dict[str, str] = {}  # by ids of output items

    def add(self, owner: str, items: list[WireItem], response: dict[str, Any]) -> None:
        """Keep an answer, and all items before it from the start of the conversation."""
        record = _Record(
            msgspec.json.encode(items),
            msgspec.json.encode(response),
            tuple(item["id"] for item in response["output"]),
        )
        self._response_ids.update(dict.fromkeys(record.output_ids, response["id"]))
        for gone in self._records.put(owner, response["id"], record):
            self._forget(gone)

    def response(self, owner: str, response_id: str) -> dict[str, Any]:
        response: dict[str, Any] = msgspec.json.decode(self._find(owner, response_id).response)
        return response

    def items(self, owner: str, response_id: str) -> list[WireItem]:
        items: list[WireItem] = msgspec.json.decode(self._find(owner, response_id).items)
        return items

    def conversation(self, owner: str, response_id: str) -> list[WireItem]:
        output: list[WireItem] = self.response(owner, response_id)["output"]
        return self.items(owner, response_id) + output

    def output_item(self, owner: str, item_id: str) -> WireItem:
        record = self._records.get(owner, self._response_ids.get(item_id, ""))
        if record is None:
            if item_id.startswith("rs_"):  # reasoning, which the answer can do without
                return {"type": "reasoning", "id": item_id}
            raise _not_found("Item", item_id)
        output: list[WireItem] = msgspec.json.decode(record.response)["output"]
        return next(item for item in output if item["id"] == item_id)

    def delete(self, owner: str, response_id: str) -> None:
        """Forget an answer; others that continue it stay. Raises ResponseNotFoundError."""
        self._forget(self._find(owner, response_id))
        self._records.pop(owner, response_id)

    def _find(self, owner: str, response_id: str) -> _Record:
        record = self._records.get(owner, response_id)
        if record is None:
            raise _not_found("Response", response_id)
        return record

    def _forget(self, record: _Record) -> None:
        for item_id in record.output_ids:
            del self._response_ids[item_id]


def _not_found(what: str, wanted: str) -> ResponseNotFoundError:
    return ResponseNotFoundError(
        f"{what} with id '{wanted}' not found",
        hint="The server remembers its last answers until it ends; send the whole conversation.",
    )


_N_STATES_MAX = 32
_IDLE_S = 600.0
_MAX_BYTES = 32 * 1024 * 1024


@dataclass(eq=False)
class ToolState:
    """The tools of one conversation, all off at first; clients know it by `container_id`.

    `preparing` is held while sources are switched on and asked for their tools.
    """

    owner: str
    toolbox: ServerToolbox
    container_id: str = field(default_factory=lambda: new_id("cntr_"))
    pages: dict[int, Page] = field(default_factory=dict)
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_users: int = 0
    expiry: asyncio.TimerHandle | None = None


class HostedTool(NamedTuple):
    """A tool that the server runs.

    Attributes:
        kind: The type of tool of the request.
        server: The `server_label`; empty if it is built in.
        name: As the client knows it.
    """

    kind: str
    server: str
    name: str
    tool: RunnableTool


class RememberedCall(NamedTuple):
    """A call, as the model made it, that an item of an answer stands for.

    Attributes:
        text: The result.
        pages: Found by it, for citations.
        container_id: Of the state that it was run in.
    """

    request: ToolRequest
    text: str
    pages: tuple[Page, ...]
    container_id: str


class ToolMemory:
    """States and calls of all conversations; `runs` has the calls by the items' ids.

    Over 32 states, the owner with the most idle ones loses the least recently used.
    """

    def __init__(self, make: Callable[[], ServerToolbox]) -> None:
        self._make = make
        self._states: OrderedDict[str, ToolState] = OrderedDict()  # the least recently used first
        self.runs = FairStore[RememberedCall](_MAX_BYTES, _n_bytes)
        self._closing: set[asyncio.Task[None]] = set()

    def new_state(self, owner: str) -> ToolState:
        toolbox = self._make()
        toolbox.on.clear()
        state = ToolState(owner, toolbox)
        self._states[state.container_id] = state
        self._rest(state)
        return state

    def state(self, owner: str, container_id: str) -> ToolState | None:
        """Return a conversation's tools and keep them for a while; None if ended or another's."""
        state = self._states.get(container_id)
        if state is None or state.owner != owner:
            return None
        self._states.move_to_end(container_id)
        if not state.n_users:
            self._rest(state)
        return state

    @contextmanager
    def using(self, state: ToolState) -> Iterator[None]:
        if state.expiry:
            state.expiry.cancel()
        self._states[state.container_id] = state
        self._states.move_to_end(state.container_id)
        state.n_users += 1
        try:
            yield
        finally:
            state.n_users -= 1
            if not state.n_users:
                self._rest(state)

    async def close(self) -> None:
        for state in list(self._states.values()):
            self._end(state)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _rest(self, state: ToolState) -> None:
        """End tools later, unless they are used again, and others now if there are too many."""
        if state.expiry:
            state.expiry.cancel()
        loop = asyncio.get_running_loop()
        state.expiry = loop.call_later(_IDLE_S, self._end, state)
        idle = [each for each in self._states.values() if not each.n_users]
        if len(idle) > _N_STATES_MAX:
            n_of = Counter(each.owner for each in idle)
            self._end(max(idle, key=lambda each: n_of[each.owner]))

    def _end(self, state: ToolState) -> None:
        if state.expiry:
            state.expiry.cancel()
        self._states.pop(state.container_id, None)
        task = asyncio.create_task(state.toolbox.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _n_bytes(run: RememberedCall) -> int:
    return len(repr(run.request)) + len(run.text) + 200 * (1 + len(run.pages))
