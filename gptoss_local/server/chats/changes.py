"""Reports changes of the chats, which one task looks for while a client listens."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, GptOssError, HistoryLockedError
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.streaming import NDJSON
from gptoss_local.talk.history import ChatSummary, History, Turn, is_temporary

_log = logging.getLogger("gptoss")

_LOOK_S = 0.2
_ORPHANS_EVERY = 25  # looks
_N_CHATS = 200
_MAX_BYTES = 8 << 20  # that wait for a client, besides one line


class ChangeEvent(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of the stream; which fields there are depends on `event`.

    Attributes:
        at: Code points of a streaming turn's texts before these.
        status: The work before the next text.
        n_done: Of `n_all` tokens of the prompt, or bytes of the model.
        notice: News of the tools for the user.
    """

    event: Literal["chats", "tree", "chat", "turn", "text", "progress", "deleted", "notice"]
    chats: list[ChatSummary] | None = None
    chat: ChatSummary | None = None
    turns: list[Turn] | None = None
    turn: Turn | None = None
    chat_id: int | None = None
    turn_id: int | None = None
    at: dict[str, int] | None = None
    content: str | None = None
    reasoning: str | None = None
    status: Literal["loading", "growing", "reading", "answering"] | None = None
    n_done: int | None = None
    n_all: int | None = None
    n_tokens: int | None = None
    tokens_per_s: float | None = None
    notice: str | None = None


class Live(Protocol):
    def flush(self) -> None: ...

    @property
    def turn(self) -> Turn: ...


def outward(turn: Turn) -> Turn:
    """Return a turn for clients: without thousands of token ids."""
    if "tokens" not in turn.stats:
        return turn
    stats = {name: value for name, value in turn.stats.items() if name != "tokens"}
    return msgspec.structs.replace(turn, stats=stats)


class _Listener:
    def __init__(self, chat_id: int | None) -> None:
        self.chat_id = chat_id
        self.is_new = True
        self.is_over = False
        self._lines: deque[bytes] = deque()
        self._n_bytes = 0
        self._end: GptOssError | None = None
        self._news = asyncio.Event()

    def put(self, line: bytes) -> None:
        """Add a line; a client that does not read is dropped."""
        if self._lines and self._n_bytes > _MAX_BYTES:
            self._lines.clear()
            self.end()
        if not self.is_over:
            self._lines.append(line)
            self._n_bytes += len(line)
            self._news.set()

    def end(self, error: GptOssError | None = None) -> None:
        """Let it end after the waiting lines, or with an error without them."""
        self.is_over, self._end = True, error
        if error is not None:
            self._lines.clear()
        self._news.set()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._lines:
                line = self._lines.popleft()
                self._n_bytes -= len(line)
                yield line
            if self._end is not None:
                raise self._end
            if self.is_over:
                return


class _Seen(NamedTuple):
    version: tuple[int, int]
    chats: list[ChatSummary]
    watched: dict[int, tuple[ChatSummary, list[Turn], list[Turn]]]
    locked: HistoryLockedError | None


class Changes:
    def __init__(self, store: ChatStore, running: Mapping[int, Live]) -> None:
        self._store = store
        self._running = running
        self._listeners: set[_Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_closed = False
        self._version = (-1, -1)
        self._chats: list[ChatSummary] = []
        self._summaries: dict[int, ChatSummary] = {}  # of the chats that are watched
        self._known: dict[int, dict[int, int]] = {}  # the memory of `History.changed`
        self._streaming: set[int] = set()  # turns that clients know as such

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    async def listen(self, chat_id: int | None) -> AsyncGenerator[bytes, None]:
        """Yield lines: first the state, then changes. Raises ChatNotFoundError, HistoryError."""
        if self._is_closed:
            return
        listener = _Listener(chat_id)
        self._listeners.add(listener)
        self.look_now()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            async for line in listener.lines():
                yield line
        finally:
            self._listeners.discard(listener)

    def look_now(self) -> None:
        """Look without waiting, as something was written here."""
        self._wake.set()

    def publish(self, chat_id: int, event: ChangeEvent) -> None:
        """Send an event to listeners that know this chat's turns."""
        self._send(event, lambda each: each.chat_id == chat_id and not each.is_new)

    def close(self) -> None:
        self._is_closed = True
        for listener in self._listeners:
            listener.end()

    async def _watch(self) -> None:
        n_looks = 0
        while self._listeners:
            self._wake.clear()
            is_due = n_looks % _ORPHANS_EVERY == 0
            n_looks += 1
            try:
                await self._look(finds_orphans=is_due)
            except GptOssError as error:
                self._fail(error)
            except Exception:
                _log.exception("the chats cannot be watched")
                self._fail(GptOssError("internal error, see the server log"))
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _fail(self, error: GptOssError) -> None:
        self._version = (-1, -1)
        self._known.clear()
        for listener in self._listeners:
            listener.end(error)

    async def _look(self, *, finds_orphans: bool) -> None:
        new = [each for each in self._listeners if each.is_new]
        wanted = {each.chat_id for each in self._listeners if each.chat_id is not None}
        joined = {each.chat_id for each in new}
        for left in self._known.keys() - wanted:
            self._streaming -= self._known.pop(left).keys()
            self._summaries.pop(left, None)

        def look(history: History) -> _Seen | None:
            if finds_orphans:
                history.stop_orphans()
            version = history.version
            if version == self._version and not new:
                return None
            watched, chats, locked = {}, [], None
            try:
                chats = history.chats(_N_CHATS, pinned_first=True)
            except HistoryLockedError as error:
                locked = error
            for chat_id in wanted:
                if locked and not is_temporary(chat_id):
                    continue
                if (of := history.of(chat_id)).has(chat_id):
                    changed = of.changed(chat_id, self._known.setdefault(chat_id, {}))
                    tree = of.tree(chat_id) if chat_id in joined else []
                    watched[chat_id] = (of.chat(chat_id), changed, tree)
            return _Seen(version, chats, watched, locked)

        seen = await self._store.call(look)
        if seen is None:
            return
        self._version = seen.version
        for listener in list(self._listeners) if seen.locked else []:
            if not is_temporary(listener.chat_id):
                self._listeners.discard(listener)
                listener.end(seen.locked)
                wanted.discard(listener.chat_id or 0)
        for chat_id in wanted - seen.watched.keys():
            self._tell_gone(chat_id)
        if seen.chats != self._chats:
            self._chats = seen.chats
            self._send(ChangeEvent(event="chats", chats=seen.chats), lambda each: not each.is_new)
        for chat_id, (chat, changed, _) in seen.watched.items():
            self._tell_changed(chat_id, chat, changed)
        for listener in self._listeners.intersection(new):
            self._welcome(listener, seen)

    def _tell_gone(self, chat_id: int) -> None:
        for listener in self._listeners:
            if listener.chat_id == chat_id and listener.is_new:
                listener.end(ChatNotFoundError(f"There is no chat {chat_id}."))
            elif listener.chat_id == chat_id:
                listener.put(NDJSON.encode(ChangeEvent(event="deleted", chat_id=chat_id)))
                listener.chat_id = None

    def _tell_changed(self, chat_id: int, chat: ChatSummary, changed: Iterable[Turn]) -> None:
        if chat != self._summaries.get(chat_id):
            self._summaries[chat_id] = chat
            self.publish(chat_id, ChangeEvent(event="chat", chat=chat))
        for turn in changed:
            if turn.state != "streaming":
                self._streaming.discard(turn.id)
            elif turn.id in self._streaming and turn.id in self._running:
                continue  # clients get its text as it comes
            else:
                self._streaming.add(turn.id)
            self.publish(chat_id, ChangeEvent(event="turn", turn=self.as_it_is(turn)))

    def _welcome(self, listener: _Listener, seen: _Seen) -> None:
        listener.put(NDJSON.encode(ChangeEvent(event="chats", chats=seen.chats)))
        if listener.chat_id in seen.watched:
            chat, _, tree = seen.watched[listener.chat_id]
            turns = [self.as_it_is(turn) for turn in tree]
            listener.put(NDJSON.encode(ChangeEvent(event="tree", chat=chat, turns=turns)))
        listener.is_new = False

    def as_it_is(self, turn: Turn) -> Turn:
        live = self._running.get(turn.id)
        if live is not None and turn.state == "streaming":
            live.flush()
            turn = live.turn
        return outward(turn)

    def _send(self, event: ChangeEvent, is_meant: Callable[[_Listener], bool]) -> None:
        meant = [each for each in self._listeners if is_meant(each)]
        if meant:
            line = NDJSON.encode(event)
            for listener in meant:
                listener.put(line)
                if listener.is_over:
                    self._listeners.discard(listener)
