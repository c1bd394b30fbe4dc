"""Counts answers, tokens, time and crashes since the server's start."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gptoss_local.base.types import Usage
from gptoss_local.harmony import (
    CallDelta,
    ChatEvent,
    ContentDelta,
    Done,
    ReasoningDelta,
    Started,
    TokenDelta,
    ToolCall,
)


@dataclass(slots=True)
class AnswerRecord:
    """One answer, from its request to its end, without its text."""

    model: str
    begun_ns: int = field(default_factory=time.time_ns)  # before the load, if there was one
    first_ns: int | None = None  # when its first piece was there
    ended_ns: int = 0
    end: str = ""  # a reason, a class of error, or `left`
    is_error: bool = False
    usage: Usage | None = None  # None unless it is complete
    n_prompt: int = 0  # 0 if it ended before they were known
    n_generated: int = 0  # tokens; of an incomplete answer, its pieces


class Counters:
    """Totals since the server's start. Thread: one event loop."""

    def __init__(self) -> None:
        self.n_active = 0  # answers under way, loading included
        self.crashes: Counter[tuple[str, str]] = Counter()  # by model and class of error
        self.watchers: list[Callable[[AnswerRecord], None]] = []  # of answers that are over

    @contextmanager
    def answering(self, model: str) -> Iterator[AnswerRecord]:
        """Count an answer under way, and its end; yield a record to add its events to."""
        self.n_active += 1
        record = AnswerRecord(model)
        try:
            yield record
        except (GeneratorExit, asyncio.CancelledError):
            self._end(record, "left")
            raise
        except Exception as error:
            self._end(record, type(error).__name__, is_error=True)
            raise
        finally:
            self.n_active -= 1

    def add(self, record: AnswerRecord, event: ChatEvent) -> None:
        match event:
            case Started():
                record.n_prompt = event.n_prompt
            case Done(reason, usage):
                record.usage = usage
                record.n_prompt, record.n_generated = usage.n_prompt, usage.n_generated
                self._end(record, reason)
            case ReasoningDelta() | ContentDelta() | CallDelta() | ToolCall() | TokenDelta():
                record.first_ns = record.first_ns or time.time_ns()
                record.n_generated += 1

    def _end(self, record: AnswerRecord, end: str, *, is_error: bool = False) -> None:
        if record.end:  # a client may leave as soon as it has the last event
            return
        record.ended_ns, record.end, record.is_error = time.time_ns(), end, is_error
        for watcher in self.watchers:
            watcher(record)
