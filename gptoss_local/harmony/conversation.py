"""Conversations: the date they keep, and the turns that are left out to make them fit."""

import bisect
import datetime
from collections.abc import Callable
from hashlib import sha256

import msgspec

from gptoss_local.base.fair_store import FairStore
from gptoss_local.base.off_loop import Check
from gptoss_local.harmony.budget import PromptTooLongError, TokenBudget
from gptoss_local.harmony.message import ChatRequest
from gptoss_local.harmony.render import render_chat
from gptoss_local.harmony.vocabulary import Vocabulary

_N_CONVERSATIONS = 1000


def lineage(request: ChatRequest) -> str:
    """Name a conversation by its owner, its messages up to the user's first one, and its tools."""
    n = next((i for i, m in enumerate(request.messages) if m.role == "user"), 0)
    beginning = (request.owner, request.messages[: n + 1], request.tools)
    return sha256(msgspec.json.encode(beginning)).hexdigest()


class StartDates:
    """Remembers dates for system messages: a prefix must not change at midnight.

    Conversations of an owner that begin in the same words are one, and the later start counts.
    """

    def __init__(self, today: Callable[[], datetime.date] = datetime.date.today) -> None:
        self._today = today
        self._dates = FairStore[datetime.date](_N_CONVERSATIONS, lambda _: 1)

    def date_of(self, request: ChatRequest) -> datetime.date:
        name = lineage(request)
        is_later_turn = any(message.role == "assistant" for message in request.messages)
        known = self._dates.get("", name) if is_later_turn else None
        date = known or self._today()
        self._dates.put("", name, date)
        return date


def shorten(
    request: ChatRequest, vocabulary: Vocabulary, n_ctx: int, check: Check = lambda: None
) -> tuple[ChatRequest, int]:
    """Make a conversation fit, if possible; slow, so call it on a thread.

    Whole turns go, so that no result loses its call: a user's message and all up to the next one.
    The last turn and all system messages stay, and a quarter of `n_ctx` is left for the answer.
    Returns the request, and how many messages are left out; none if it cannot be made to fit.
    """

    def is_within(n_turns_less: int, n_tokens: int) -> bool:
        budget = TokenBudget(n_tokens, check)
        try:
            prompt = render_chat(_without(request, n_turns_less), vocabulary, budget=budget)
        except PromptTooLongError:
            return False
        return len(prompt) < n_tokens

    n_turns = sum(message.role == "user" for message in request.messages)
    if is_within(0, n_ctx):
        return request, 0
    n_less = bisect.bisect_left(
        range(n_turns), True, lo=min(1, n_turns), key=lambda n: is_within(n, n_ctx - n_ctx // 4)
    )
    if n_less == n_turns:
        return request, 0
    shorter = _without(request, n_less)
    return shorter, len(request.messages) - len(shorter.messages)


def _without(request: ChatRequest, n_turns: int) -> ChatRequest:
    starts = [i for i, message in enumerate(request.messages) if message.role == "user"]
    start = starts[n_turns] if n_turns else 0
    kept = [m for i, m in enumerate(request.messages) if i >= start or m.role == "system"]
    return msgspec.structs.replace(request, messages=tuple(kept))
