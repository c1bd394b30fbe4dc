"""Remembers what the server has run for `/v1/responses`: the state of tools, calls and results.

The items of some tools have no place for all of a call, and none for its result, so a conversation
that comes back is completed from here. In memory only, and bounded. Thread: one event loop; others
may look up calls.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gptoss_local.harmony import ToolRequest
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.talk.tools import Page
from gptoss_local.talk.tools import Toolbox as ServerToolbox

_N_STATES_MAX = 32
_IDLE_S = 600.0
_MAX_BYTES = 32 * 1024 * 1024


class ToolState:
    """The tools of one conversation, and what they hold for it.

    Args:
        owner: Whose conversation it is.
        toolbox: Its tools; no source is on.

    Attributes:
        container_id: Its name for clients, as that of a container of OpenAI's.
        pages: What the model has read, by cursor.
        preparing: Held while sources are switched on and asked for their tools.
    """

    def __init__(self, owner: str, toolbox: ServerToolbox) -> None:
        self.owner = owner
        self.toolbox = toolbox
        self.container_id = new_id("cntr_")
        self.pages: dict[int, Page] = {}
        self.preparing = asyncio.Lock()
        self.n_users = 0
        self.expiry: asyncio.TimerHandle | None = None


class Run(NamedTuple):
    """A call that an item of an answer stands for.

    Attributes:
        request: The call, as the model made it.
        text: The result; None: it waits for the user's approval.
        pages: What can be cited since.
        container_id: Of the state that it was run in.
    """

    request: ToolRequest
    text: str | None
    pages: tuple[Page, ...]
    container_id: str


class ToolMemory:
    """States and calls of all conversations.

    Args:
        make: Makes the tools of a conversation.
        n_states_max: Conversations whose tools are kept; the least recently used are ended.
        idle_s: Seconds after which unused tools are ended.
        max_bytes: Of calls and results, about; the oldest go first.
    """

    def __init__(
        self,
        make: Callable[[], ServerToolbox],
        *,
        n_states_max: int = _N_STATES_MAX,
        idle_s: float = _IDLE_S,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._make = make
        self._n_states_max = n_states_max
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._states: OrderedDict[str, ToolState] = OrderedDict()  # the least recently used first
        self._runs: OrderedDict[tuple[str, str], Run] = OrderedDict()
        self._n_bytes = 0
        self._closing: set[asyncio.Task[None]] = set()

    def new_state(self, owner: str) -> ToolState:
        """Make the tools of a conversation, all of them off."""
        toolbox = self._make()
        toolbox.on.clear()
        state = ToolState(owner, toolbox)
        self._states[state.container_id] = state
        self._rest(state)
        idle = [each for each in self._states.values() if not each.n_users and each is not state]
        for each in idle[: max(0, len(self._states) - self._n_states_max)]:
            self._end(each)
        return state

    def state(self, owner: str, container_id: str) -> ToolState | None:
        """Return the tools of a conversation, which are not ended soon.

        None if they were ended, or are another owner's.
        """
        state = self._states.get(container_id)
        if state is None or state.owner != owner:
            return None
        self._states.move_to_end(container_id)
        if not state.n_users:
            self._rest(state)
        return state

    @contextmanager
    def using(self, state: ToolState) -> Iterator[None]:
        """Keep the tools of a conversation as long as they are used."""
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

    def add(self, owner: str, item_id: str, run: Run) -> None:
        """Keep what an item of an answer stands for."""
        self._runs[owner, item_id] = run
        self._n_bytes += _n_bytes(run)
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= _n_bytes(self._runs.popitem(last=False)[1])

    def run(self, owner: str, item_id: str) -> Run | None:
        """Return what an item of an answer stands for; None if that is not known."""
        return self._runs.get((owner, item_id))

    async def close(self) -> None:
        """End all tools."""
        for state in list(self._states.values()):
            self._end(state)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _rest(self, state: ToolState) -> None:
        """End tools later, unless they are used again."""
        if state.expiry:
            state.expiry.cancel()
        loop = asyncio.get_running_loop()
        state.expiry = loop.call_later(self._idle_s, self._end, state)

    def _end(self, state: ToolState) -> None:
        if state.expiry:
            state.expiry.cancel()
        self._states.pop(state.container_id, None)
        task = asyncio.create_task(state.toolbox.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _n_bytes(run: Run) -> int:
    return len(repr(run.request)) + len(run.text or "") + 200 * (1 + len(run.pages))
