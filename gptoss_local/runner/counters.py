"""Counts what the server has done since its start: answers, tokens, time and crashes."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gptoss_local.chat import ChatEvent, Done
from gptoss_local.errors import GptOssError


class Counters:
    """Totals since the server's start. Thread: one event loop.

    Attributes:
        n_active: Answers under way, loading included.
        ends: Answers by how they ended: a reason, a class of error, or `left`.
        tokens: Of complete answers, by kind.
        nanoseconds: The time of complete answers, by phase.
        crashes: Engine processes that ended unasked, by model and class of error.
    """

    def __init__(self) -> None:
        self.n_active = 0
        self.ends: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.nanoseconds: Counter[str] = Counter()  # sums of floats would drift over months
        self.crashes: Counter[tuple[str, str]] = Counter()

    def add(self, event: ChatEvent) -> None:
        """Count an answer that is over; other events do not matter."""
        if not isinstance(event, Done):
            return
        usage = event.usage
        self.ends[event.reason] += 1
        self.tokens["prompt"] += usage.n_prompt
        self.tokens["cached"] += usage.n_cached
        self.tokens["generated"] += usage.n_generated
        self.nanoseconds["queue"] += usage.queue_ns
        self.nanoseconds["prefill"] += usage.prefill_ns
        self.nanoseconds["decode"] += usage.decode_ns

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count an answer under way, and how it ends without Done: a class of error, or `left`."""
        self.n_active += 1
        try:
            yield
        except GptOssError as error:
            self.ends[type(error).__name__] += 1
            raise
        except (GeneratorExit, asyncio.CancelledError):
            self.ends["left"] += 1
            raise
        finally:
            self.n_active -= 1

    def crashed(self, model: str, error: GptOssError) -> None:
        """Count an engine process that ended unasked."""
        self.crashes[model, type(error).__name__] += 1
