"""Ends reasoning: at its budget, when the user wants the answer, or when it repeats itself.

The analysis is closed as the model would close it, and the model continues from there.
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
    """Notices a text that goes in circles: fewer than `n_distinct` n-grams in a long window.

    Copies of a passage of p tokens have p different n-grams, however many copies there are;
    counters and names that change between them add some.
    """

    def __init__(self, n_window: int, n_distinct: int) -> None:
        self._n_window, self._n_distinct = n_window, n_distinct
        self._last: deque[int] = deque(maxlen=_N_GRAM)
        self._grams: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def feed(self, token: int) -> bool:
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
    """Decides to close an answer's analysis (`is_enough`), or to end the answer (`is_circling`)."""

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
        if parser.is_call:  # a file of equal rows is no loop
            return
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
        self.is_enough = False
        self.n_closed += 1
        self._reasoning = Repetition(_REASONING_WINDOW, _N_REASONING_DISTINCT)
