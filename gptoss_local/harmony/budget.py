"""Limits the length of a prompt while it is rendered, and stops once its client is gone."""

import msgspec

from gptoss_local.base.formats.o200k import LONGEST_TOKEN_BYTES
from gptoss_local.base.off_loop import Check
from gptoss_local.harmony.message import ChatRequest, RawRequest


class PromptTooLongError(Exception):
    """Ends the rendering of a prompt that is too long at `n_tokens`. Users never see it."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__(n_tokens)
        self.n_tokens = n_tokens


class TokenBudget:
    """Counts a prompt's tokens up to `max_tokens`; `check` raises if no one wants it any more."""

    def __init__(self, max_tokens: int | None = None, check: Check = lambda: None) -> None:
        self._max_tokens = max_tokens
        self._check = check
        self._n_tokens = 0

    def spend(self, n_tokens: int) -> None:
        """Count further tokens. Raises PromptTooLongError, or `check`'s error."""
        self._check()
        self._n_tokens += n_tokens
        if self._max_tokens is not None and self._n_tokens > self._max_tokens:
            raise PromptTooLongError(self._n_tokens)


def least_tokens(request: ChatRequest | RawRequest) -> int:
    """Return a lower bound of a prompt's tokens, without rendering it."""
    if isinstance(request, RawRequest):
        return len(request.prompt) // LONGEST_TOKEN_BYTES
    n_characters = sum(len(message.content) for message in request.messages)
    return n_characters // LONGEST_TOKEN_BYTES + len(request.earlier_tokens)


def text_size(request: ChatRequest | RawRequest) -> int:
    if isinstance(request, RawRequest):
        return len(request.prompt)
    texts = sum(len(m.content) + len(m.reasoning) for m in request.messages)
    calls = [m.tool_calls for m in request.messages if m.tool_calls]
    return texts + len(request.earlier_tokens) + len(msgspec.json.encode((calls, request.tools)))
