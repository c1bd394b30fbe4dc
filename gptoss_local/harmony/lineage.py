"""Recognizes the turns of one conversation, and remembers the date when it began."""

import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

import msgspec

from gptoss_local.harmony.message import ChatRequest

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
        self._dates: OrderedDict[str, datetime.date] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def date_of(self, request: ChatRequest) -> datetime.date:
        name = lineage(request)
        is_later_turn = any(message.role == "assistant" for message in request.messages)
        with self._lock:
            known = self._dates.pop(name, None)
            date = known if known is not None and is_later_turn else self._today()
            self._dates[name] = date
            if len(self._dates) > _N_CONVERSATIONS:
                self._dates.popitem(last=False)
        return date
