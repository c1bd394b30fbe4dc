"""The file of chats, and streams of its changes, one a client, each as fast as its client reads."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, HistoryError
from gptoss_local.base.settings import PASSPHRASE, take_passphrase
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.streaming import NDJSON
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import ChatSummary, History, News, Turn, Watch

T = TypeVar("T")

_log = logging.getLogger("gptoss")

_LOOK_S = 0.2
_ORPHANS_S = 5.0
_TEXT_S = 1 / 30
_PROGRESS_S = 0.25
_N_CHATS = 200  # of each folder, unless more are asked for
_N_NOTICES = 20  # that wait for a client


class ChatStore:
    """A `History` in its own thread, opened with the first call and GPTOSS_PASSPHRASE."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passphrase = take_passphrase()
        self._thread = ThreadPoolExecutor(1, "chats")
        self._history: History | None = None

    async def call(self, work: Callable[[History], T], chat_id: int | None = None) -> T:
        """Do something with the history of `chat_id`, or the file's; calls run one by one."""

        def run() -> T:
            self._history = self._history or self._open()
            return work(self._history.of(chat_id))

        # A caller that leaves does not stop its call.
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _open(self) -> History:
        history = History(self._path)
        passphrase, self._passphrase = self._passphrase, ""
        if history.lock.is_locked and passphrase:
            try:
                history.lock.unlock(passphrase)
            except HistoryError as error:
                _log.warning("%s: %s", PASSPHRASE, error.message)
        return history

    async def close(self) -> None:
        """Close the file after all calls; turns that still stream here become `stopped`."""

        def run() -> None:
            if self._history is not None:
                self._history.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, run)
        self._thread.shutdown()


class ChangeEvent(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line of the stream; which fields there are depends on `event`.

    Attributes:
        at: Code points of a streaming turn's texts before these.
        status: The work before the next text.
        n_done: Of `n_all` tokens of the prompt, or bytes of the model.
        notice: News of the tools for the user.
        answering: All chats in which a turn streams.
    """

    event: Literal[
        "chats", "answering", "tree", "chat", "turn", "text", "progress", "deleted", "notice"
    ]
    chats: list[ChatSummary] | None = None
    answering: list[int] | None = None
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
    """An answer that runs here."""

    @property
    def answer(self) -> Answer: ...

    @property
    def turn(self) -> Turn:
        """Return the answer's turn with its texts so far."""


def outward(turn: Turn) -> Turn:
    """Return a turn for clients: without thousands of token ids."""
    if "tokens" not in turn.stats:
        return turn
    stats = {name: value for name, value in turn.stats.items() if name != "tokens"}
    return msgspec.structs.replace(turn, stats=stats)


class Changes:
    def __init__(
        self, manager: ModelManager, store: ChatStore, running: Mapping[int, Live]
    ) -> None:
        self._manager, self._store, self._running = manager, store, running
        self._listeners: set[_Listener] = set()
        self._is_closed = False

    async def listen(
        self, chat_id: int | None, n_chats: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield lines: first the state, then changes. Raises ChatNotFoundError, HistoryError."""
        listener = _Listener(self, chat_id, n_chats or _N_CHATS)
        self._listeners.add(listener)
        try:
            is_last = self._is_closed
            while not is_last:
                is_last = self._is_closed
                if listener.is_due():
                    news = await self._store.call(listener.look)
                    for event in listener.changes(news):
                        yield NDJSON.encode(event)
                for event in listener.growth():
                    yield NDJSON.encode(event)
                if not is_last:
                    await listener.wait()
        finally:
            self._listeners.discard(listener)

    def look_now(self) -> None:
        """Look without waiting, as something was written here."""
        for listener in self._listeners:
            listener.wake.set()

    def tell(self, chat_id: int, notice: str) -> None:
        for listener in self._listeners:
            if listener.chat_id == chat_id:
                listener.notices.append(notice)

    def close(self) -> None:
        self._is_closed = True
        self.look_now()

    def as_it_is(self, turn: Turn) -> Turn:
        live = self._running.get(turn.id) if turn.state == "streaming" else None
        return outward(turn if live is None else live.turn)

    def progress(self, turn_id: int, live: Live) -> ChangeEvent | None:
        answer = live.answer
        event = partial(ChangeEvent, event="progress", turn_id=turn_id)
        if answer.phase in ("reasoning", "answering"):
            return event(status="answering", n_tokens=answer.n_tokens, tokens_per_s=answer.tok_s)
        if answer.prefill is not None:
            n_done, n_all, _ = answer.prefill
            return event(status="reading", n_done=n_done, n_all=n_all)
        if answer.growth is not None:
            return event(status="growing", n_all=answer.growth.n_ctx)
        for load in self._manager.loading:
            if load.model == live.turn.model:
                return event(status="loading", n_done=load.completed, n_all=load.total)
        return None

    def running(self, turn_ids: Iterable[int]) -> dict[int, Live]:
        return {turn_id: self._running[turn_id] for turn_id in turn_ids if turn_id in self._running}


class _Listener:
    """A client, and what it has: so what is new to it."""

    def __init__(self, changes: Changes, chat_id: int | None, n_chats: int) -> None:
        self.chat_id = chat_id
        self.wake = asyncio.Event()
        self.wake.set()
        self.notices: deque[str] = deque(maxlen=_N_NOTICES)
        self._changes = changes
        self._watch = Watch(n_chats, by_folder=True)
        self._looked_s = self._orphans_s = self._told_s = 0.0
        self._chats: list[ChatSummary] | None = None
        self._answering: list[int] | None = None  # it may have begun and ended between two streams
        self._chat: ChatSummary | None = None
        self._texts: dict[int, tuple[int, int]] = {}  # lengths of what streams
        self._progress: dict[int, ChangeEvent] = {}

    async def wait(self) -> None:
        """Wait for a change, or until it is time to look for text or for others' changes."""
        wait_s = _TEXT_S if self._changes.running(self._texts) else _LOOK_S
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.wake.wait()

    def is_due(self) -> bool:
        now_s = time.monotonic()
        is_due = self.wake.is_set() or now_s - self._looked_s >= _LOOK_S
        self.wake.clear()
        if is_due:
            self._looked_s = now_s
        return is_due

    def look(self, history: History) -> News | None:
        if self._looked_s - self._orphans_s >= _ORPHANS_S:
            self._orphans_s = self._looked_s
            history.stop_orphans()
        return self._watch.look(history, self.chat_id)

    def changes(self, news: News | None) -> Iterator[ChangeEvent]:
        if news is None:
            return
        before, self._chat = self._chat, news.chat
        if self.chat_id is not None and news.chat is None and before is None:
            raise ChatNotFoundError(f"There is no chat {self.chat_id}.")
        if news.chats != self._chats:
            self._chats = news.chats
            yield ChangeEvent(event="chats", chats=news.chats)
        if news.answering != self._answering:
            self._answering = news.answering
            yield ChangeEvent(event="answering", answering=news.answering)
        if self.chat_id is None:
            return
        if news.chat is None:
            yield ChangeEvent(event="deleted", chat_id=self.chat_id)
            self.chat_id = None
        elif before is None:
            turns = [self._noted(turn) for turn in news.turns]
            yield ChangeEvent(event="tree", chat=news.chat, turns=turns)
        else:
            if news.chat != before:
                yield ChangeEvent(event="chat", chat=news.chat)
            for turn in news.turns:
                is_live = turn.id in self._texts and self._changes.running([turn.id])
                if turn.state != "streaming" or not is_live:  # else its text comes as it grows
                    yield ChangeEvent(event="turn", turn=self._noted(turn))

    def growth(self) -> Iterator[ChangeEvent]:
        while self.notices:
            yield ChangeEvent(event="notice", notice=self.notices.popleft())
        is_progress_due = time.monotonic() - self._told_s >= _PROGRESS_S
        if is_progress_due:
            self._told_s = time.monotonic()
        for turn_id, live in self._changes.running(self._texts).items():
            n_content, n_reasoning = self._texts[turn_id]
            content = live.answer.content[n_content:]
            reasoning = live.answer.reasoning[n_reasoning:]
            if content or reasoning:
                self._texts[turn_id] = n_content + len(content), n_reasoning + len(reasoning)
                at = {"content": n_content, "reasoning": n_reasoning}
                yield ChangeEvent(
                    event="text", turn_id=turn_id, at=at, content=content, reasoning=reasoning
                )
            progress = self._changes.progress(turn_id, live) if is_progress_due else None
            if progress is not None and progress != self._progress.get(turn_id):
                self._progress[turn_id] = progress
                yield progress

    def _noted(self, turn: Turn) -> Turn:
        """Return a turn as it is now, and note how much of it the client has then."""
        turn = self._changes.as_it_is(turn)
        self._texts.pop(turn.id, None)
        if turn.state == "streaming":
            self._texts[turn.id] = len(turn.content), len(turn.reasoning)
        return turn
