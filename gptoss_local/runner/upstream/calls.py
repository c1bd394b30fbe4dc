"""Requests to upstreams, for tracing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from gptoss_local.base.errors import GptOssError


class UpstreamFault(Exception):
    """A request failed; `error` is what to raise if it is not tried again.

    `may_retry`: it may succeed elsewhere, or later, after `after_s` if the upstream says when.
    `is_of_replica`: the address works for no request.
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
    """One HTTP request for an answer."""

    url: str  # of the upstream, without a path
    kind: str
    model: str  # its name there
    n_prompt: int
    n_resent: int  # times that the same was asked before
    headers: dict[str, str] = field(default_factory=dict)  # a follower may add some
    status: int | None = None  # None: no answer came
    n_generated: int = 0
    n_cached: int | None = None  # None: the upstream does not say


Follow = Callable[[UpstreamCall], AbstractContextManager[None]]

following: ContextVar[Follow | None] = ContextVar("following", default=None)
"""Follows the calls of this task, and of those that it starts."""


def followed(call: UpstreamCall) -> AbstractContextManager[None]:
    follow = following.get()
    return nullcontext() if follow is None else follow(call)
