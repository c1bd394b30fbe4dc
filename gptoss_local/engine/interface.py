"""The engine of a model as `gptoss_local.harmony` sees it: token ids in, token ids out."""

from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Protocol

from gptoss_local.engine.protocol import Finished, Generate, Loaded, Prefilled, Stats, Tokens

caller: ContextVar[tuple[str, str]] = ContextVar("caller", default=("", ""))
"""The key and connection of a request, which take turns where the engine supports it."""
cache_salt: ContextVar[bytes] = ContextVar("cache_salt", default=b"")
"""The salt of the caller's prefixes, which requests with another salt do not find."""


class AnyEngine(Protocol):
    """An engine process of ours, or a remote engine. Thread: one event loop."""

    @property
    def loaded(self) -> Loaded: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def n_active(self) -> int: ...

    def generate(self, request: Generate) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        """Yield the events of a sequence, Finished last; closing the iterator cancels it.

        Remote engines may ignore `priority` and `in_memory`, and send no Prefilled. Raises
        ContextOverflowError, or UsageError for an unsupported request.
        """

    def cancel(self, seq_id: int) -> None:
        """End a sequence early; its iterator still yields Finished, with the reason `cancelled`."""

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        """Announce the start of a conversation's next prompt; nothing waits for it."""

    async def stats(self) -> Stats: ...

    async def close(self) -> None:
        """Free its memory; running sequences end with an error."""
