"""Learn what a step costs by its number of rows, and so how long a draft should be."""

import math
import time
from collections.abc import Callable
from itertools import pairwise

from gptoss_local.engine.protocol import StepTimes

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
_MEASURE_S = 1.5  # no wider steps are measured after so long
_REPEAT_S = 0.05  # nor is one repeated that takes longer
_LEARN = 0.1  # weight of a new step
_NOTABLE = 0.02  # smaller changes do not matter
_MIN_GAIN = 1.05  # a draft must promise so much, as promises are often broken


class StepCosts:
    """Seconds of a decode step by its rows: measured at the start and updated since.

    A step of another width than the one before takes longer: llama.cpp builds its graph again, and
    CUDA records it again. A draft pays for that once, there and back, when a run of drafts begins.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self.switch_s = 0.0
        """Time that a step of another width and the way back take beyond steady ones."""
        self._n_rows = 1  # of the step before
        self._table = [math.inf] * (WIDTHS[-1] + 1)  # PERF: of all widths, rebuilt when one moves

    def measure(self, decode: Callable[[int], None], n_rows_max: int) -> None:
        """Time `decode(n_rows)` up to `n_rows_max`, narrow steps first, as far as the time goes."""
        end_s = time.monotonic() + _MEASURE_S

        def timed(*widths: int) -> float:
            start_s = time.monotonic()
            for width in widths:
                decode(width)
            return time.monotonic() - start_s

        steady_s = 0.0
        for width in (w for w in WIDTHS if w <= n_rows_max):
            timed(
                width
            )  # NOTE: the first one is not representative: 81 ms on a GPU, the next takes 3
            steady_s = timed(width)
            if steady_s < _REPEAT_S:  # PERF: few steps, as the model is being loaded
                steady_s = min(steady_s, timed(width))
            self._seconds[width] = steady_s
            self._tabulate()
            if time.monotonic() > end_s:
                return
        if steady_s < _REPEAT_S:  # otherwise the switch does not matter
            timed(1)
            switched_s = min(timed(width, 1), timed(width, 1))
            self.switch_s = max(0.0, switched_s - steady_s - self._seconds[1])

    def know(self, times: StepTimes) -> None:
        """Take over what an earlier process has measured."""
        self._seconds, self.switch_s = dict(times.seconds), times.switch_s
        self._tabulate()

    def times(self) -> StepTimes:
        """Return what is known now, for a later process."""
        return StepTimes(tuple(self.items()), self.switch_s)

    def observe(self, n_rows: int, step_s: float) -> None:
        """Learn from a step that had `n_rows` rows, and nothing of a prompt among them."""
        is_switch, self._n_rows = n_rows != self._n_rows, n_rows
        if is_switch or (known := self._seconds.get(n_rows)) is None:
            return
        # NOTE: a step that was held up by the machine must not teach much
        now = known + _LEARN * (min(step_s, 2 * known) - known)
        self._seconds[n_rows] = now
        if abs(now - self._table[n_rows]) > _NOTABLE * now:
            self._tabulate()

    def items(self) -> list[tuple[int, float]]:
        """Return the widths that were measured and what they take now, in seconds."""
        return sorted(self._seconds.items())

    def seconds(self, n_rows: int) -> float:
        """Return what a step of `n_rows` rows takes, interpolated between known widths."""
        return self._table[n_rows] if n_rows < len(self._table) else math.inf

    def _tabulate(self) -> None:
        known = self.items()
        for (below, low), (above, high) in pairwise([*known[:1], *known]):
            for width in range(below, above + 1):
                share = (width - below) / max(1, above - below)
                self._table[width] = low + share * (high - low)

    def draft_length(self, n_rows: int, acceptance: float, n_max: int) -> int:
        """Return how many tokens to draft for one sequence; 0 if a draft would not pay.

        Maximizes the tokens per second of the whole step, in which every other row yields one, and
        which bears the whole switch if the step before had no draft.

        Args:
            n_rows: Rows of the step without the draft, the sequence's own one among them.
            acceptance: The chance that a token of the draft is right, given those before it.
            n_max: Most tokens of a draft.
        """
        best, best_rate = 0, _MIN_GAIN * n_rows / self.seconds(n_rows)
        switch_s = self.switch_s if self._n_rows <= n_rows else 0.0
        for width in WIDTHS:
            if width <= n_rows or n_max <= 0:
                continue
            n_draft = min(width - n_rows, n_max)
            n_expected = acceptance * (1 - acceptance**n_draft) / (1 - acceptance)
            rate = (n_rows + n_expected) / (self.seconds(n_rows + n_draft) + switch_s)
            if rate > best_rate:
                best, best_rate = n_draft, rate
            if n_draft == n_max:
                break
        return best
