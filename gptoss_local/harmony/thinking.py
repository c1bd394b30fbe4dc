"""Reasoning that ends: at its budget, when the user asks for the answer, or when it repeats itself.

The engine knows none of this: the sequence is cancelled, the analysis is closed as the model would
close it, and the model continues from there, with everything before it in the prefix cache.
"""

from collections import Counter, deque

from gptoss_local.harmony.message import AnswerNow
from gptoss_local.harmony.parser import HarmonyParser, RawParser

_N_GRAM = 8
_REASONING_WINDOW, _N_REASONING_DISTINCT = 1024, 128
# An answer may repeat itself because it was asked to; it must be long and hopeless.
_ANSWER_WINDOW, _N_ANSWER_DISTINCT = 4096, 256
_N_CLOSINGS = 3


class Repetition:
    """Notices a text that goes in circles: a long window with few different n-grams.

    Exact copies of a passage of p tokens have p different ones, however many copies there are;
    counters and names that change between the copies add some.

    Args:
        n_window: Tokens that are looked at.
        n_distinct: N-grams that are too few for them.
    """

    def __init__(self, n_window: int, n_distinct: int) -> None:
        self._n_window, self._n_distinct = n_window, n_distinct
        self._last: deque[int] = deque(maxlen=_N_GRAM)
        self._grams: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def feed(self, token: int) -> bool:
        """Take a token; returns whether the text goes in circles."""
        self._last.append(token)
        gram = hash(tuple(self._last))
        self._grams.append(gram)
        self._counts[gram] += 1
        if len(self._grams) <= self._n_window:
            return False
        oldest = self._grams.popleft()
        self._counts[oldest] -= 1
        if not self._counts[oldest]:
            del self._counts[oldest]
        return len(self._counts) <= self._n_distinct


class Thinking:
    """Decides, token by token, whether an answer's analysis is to be closed, or the answer ended.

    Args:
        budget: Tokens of analysis; None: any number.
        ends_repetition: Whether text that goes in circles is ended.
        answer_now: Asks for the answer.

    Attributes:
        is_enough: The analysis is to be closed.
        is_circling: The answer goes in circles, so that it is over.
    """

    def __init__(
        self, budget: int | None, ends_repetition: bool, answer_now: AnswerNow | None
    ) -> None:
        self.is_enough = self.is_circling = False
        self.n_closed = 0
        self._budget = budget
        self._answer_now = answer_now
        self._ends_repetition = ends_repetition
        self._reasoning = Repetition(_REASONING_WINDOW, _N_REASONING_DISTINCT)
        self._answer = Repetition(_ANSWER_WINDOW, _N_ANSWER_DISTINCT)

    def feed(self, token: int, parser: HarmonyParser | RawParser) -> None:
        """Take a token that the parser has just been fed."""
        if not parser.is_reasoning:
            self.is_circling = self._ends_repetition and self._answer.feed(token)
            return
        is_circling = self._ends_repetition and self._reasoning.feed(token)
        is_wished = self._answer_now is not None and self._answer_now.is_wished
        is_spent = self._budget is not None and parser.n_reasoning >= self._budget
        is_enough = is_wished or is_spent or is_circling
        if is_enough and self.n_closed < _N_CLOSINGS:
            self.is_enough = True
        elif is_circling:
            self.is_circling = True

    def closed(self) -> None:
        """Note that the analysis has been closed."""
        self.is_enough = False
        self.n_closed += 1
        self._reasoning = Repetition(_REASONING_WINDOW, _N_REASONING_DISTINCT)
