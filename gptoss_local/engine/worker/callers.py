"""Let callers take turns: who asks for little does not wait for those who ask for much.

Source: weighted fair queueing (Demers, Keshav, Shenker, SIGCOMM 1989), in tokens.
"""

from dataclasses import dataclass
from typing import NamedTuple

_UNKNOWN, _LEAST = 64, 16  # tokens of a request
_N_KNOWN = 1024


class Turn(NamedTuple):
    """The place of a request in the queue of all callers.

    Attributes:
        start: On the clock of `Callers`.
        n_tokens: What it counts as.
    """

    caller: str = ""
    start: float = 0.0
    n_tokens: int = 0

    @property
    def end(self) -> float:
        """Return when it would be over if all callers were served at once: the first is next."""
        return self.start + self.n_tokens


@dataclass(slots=True)
class _Caller:
    """`end`: of its latest turn; `n_tokens`: of a request of it; `n_open`: which wait or run."""

    end: float = 0.0
    n_tokens: int = _UNKNOWN
    n_open: int = 0


class Callers:
    """A clock of the tokens that each caller could have had, if all had equally many.

    A turn begins now, or where the caller's turn before it ends, so those of one caller are in the
    order in which it asks. The clock advances with whatever is served, so no request waits forever.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._known: dict[str, _Caller] = {}  # the one that asked last at the end

    def turn(self, caller: str) -> Turn:
        """Return the turn of a new request."""
        asks = self._known[caller] = self._known.pop(caller, _Caller())
        turn = Turn(caller, max(self._now, asks.end), asks.n_tokens)
        asks.end, asks.n_open = turn.end, asks.n_open + 1
        if len(self._known) > _N_KNOWN:
            idle = (name for name, each in self._known.items() if not each.n_open)
            if gone := next(idle, ""):
                del self._known[gone]
        return turn

    def serve(self, turn: Turn) -> None:
        """Take note of a request that is served now, which may be far if it is alone."""
        self._now = max(self._now, turn.start)

    def end(self, turn: Turn, n_tokens: int) -> None:
        """Take note of a request that is over, and of what it had."""
        asked = self._known[turn.caller]
        if n_tokens:
            self._now += turn.n_tokens / sum(each.n_open > 0 for each in self._known.values())
            asked.n_tokens = max(_LEAST, n_tokens)
        asked.n_open -= 1
