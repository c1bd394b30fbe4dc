"""Requests to upstreams, for tracing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from gptoss_local.base.errors import GptOssError


class UpstreamFault(Exception):
    """A request failed.

    Args:
        error: What to raise if it is not tried again.
        may_retry: The same request may succeed elsewhere, or later.
        is_of_replica: The address works for no request.
        after_s: When the upstream says to come again.
    """

    def __init__(
        self,
        error: GptOssError,
        *,
        may_retry: bool = True,
        is_of_replica: bool = True,
        after_s: float = 0.0,
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.may_retry = may_retry
        self.is_of_replica = is_of_replica
        self.after_s = after_s


@dataclass(slots=True)
class UpstreamCall:
    """One HTTP request for an answer.

    Attributes:
        url: Of the upstream, without a path.
        model: Its name there.
        n_resent: How many times the same was asked before.
        headers: To send with it; a follower may add some.
        status: Of HTTP; None: no answer came.
        n_cached: None: the upstream does not say.
    """

    url: str
    kind: str
    model: str
    n_prompt: int
    n_resent: int
    headers: dict[str, str] = field(default_factory=dict)
    status: int | None = None
    n_generated: int = 0
    n_cached: int | None = None


Follow = Callable[[UpstreamCall], AbstractContextManager[None]]

following: ContextVar[Follow | None] = ContextVar("following", default=None)
"""Follows the calls of this task, and of those that it starts."""


def followed(call: UpstreamCall) -> AbstractContextManager[None]:
    """Return a context for a call to run in, which its UpstreamFault leaves."""
    follow = following.get()
    return nullcontext() if follow is None else follow(call)
