"""The engine of a model as `gptoss_local.harmony` sees it: token ids in, token ids out."""

from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Protocol

from gptoss_local.engine.protocol import Finished, Loaded, Prefilled, Stats, Tokens
from gptoss_local.types import SamplingParams

caller: ContextVar[tuple[str, str]] = ContextVar("caller", default=("", ""))
"""The key and connection of a request: these are served in turn, where the engine can."""
cache_salt: ContextVar[bytes] = ContextVar("cache_salt", default=b"")
"""The salt of the caller's prefixes: a request with another one does not find them."""


class AnyEngine(Protocol):
    """An engine process of ours, or engines of others. Thread: one event loop."""

    @property
    def loaded(self) -> Loaded:
        """The model's facts, above all its context."""

    @property
    def is_alive(self) -> bool:
        """Return whether it takes requests."""

    @property
    def n_active(self) -> int:
        """Return how many sequences wait or run."""

    def generate(
        self,
        prompt: list[int],
        sampling: SamplingParams,
        *,
        stop_tokens: list[int],
        max_tokens: int | None = None,
        grammar: str | None = None,
        n_logprobs: int | None = None,
        reports_prefill: bool = False,
        priority: int = 0,
        in_memory: bool = False,
    ) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        """Yield the events of a sequence, Finished last; closing the iterator cancels it.

        The fields are those of the frame `Generate`. Prefilled comes, and priority counts, where
        the engine can; an engine of others keeps prompts as it likes.

        Raises:
            ContextOverflowError: the prompt does not fit.
            UsageError: the engine cannot do what is asked.
            EngineError: it failed on this sequence, or is not there any more.
        """

    def cancel(self, seq_id: int) -> None:
        """End a sequence early; its iterator still yields Finished, with the reason `cancelled`."""

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        """Announce the beginning of a conversation's next prompt; nothing waits for it."""

    async def stats(self) -> Stats:
        """Return counters. Raises EngineError."""

    async def close(self) -> None:
        """Free its memory; running sequences end with an error."""
