"""Harmony's messages, each rendered once while conversations come back with it."""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from gptoss_local.harmony.budget import TokenBudget

_MAX_TOKENS = 2**19  # four whole contexts; 2 MB, and their text


class Part(NamedTuple):
    """A message of harmony; `name` is the tool's name. Empty fields are omitted."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    text: str
    channel: str = ""
    recipient: str = ""
    content_type: str = ""
    name: str = ""


class RenderedParts:
    """The tokens of the last used parts; safe for threads.

    PERF: 2 cores, an agent's 42,000 tokens: 18 ms if all is rendered, 1.3 ms if the last turn is.
    """

    def __init__(
        self,
        render: Callable[[Part, TokenBudget], Sequence[int]],
        max_tokens: int = _MAX_TOKENS,
    ) -> None:
        self._render = render
        self._max_tokens = max_tokens
        self._tokens: OrderedDict[Part, array[int]] = OrderedDict()  # least recently used first
        self._n_tokens = 0
        self._lock = threading.Lock()

    def tokens(self, part: Part, budget: TokenBudget) -> "array[int]":
        """Render a part, from its `<|start|>` to its end; the array is shared."""
        with self._lock:
            found = self._tokens.get(part)
            if found is not None:
                self._tokens.move_to_end(part)
        if found is not None:
            budget.spend(len(found))
            return found
        tokens = array("i", self._render(part, budget))
        with self._lock:
            self._n_tokens += len(tokens) - len(self._tokens.pop(part, ()))
            self._tokens[part] = tokens
            while self._n_tokens > self._max_tokens:
                self._n_tokens -= len(self._tokens.popitem(last=False)[1])
        return tokens
