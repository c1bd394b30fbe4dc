"""Learn the cost of a step by its rows: for drafts, streams that take turns, and prefill."""

import math
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

from gptoss_local.base.types import StepTimes
from gptoss_local.engine.llama import Batch, Context

WIDTHS = (1, 2, 3, 4, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64)
"""With the widths where a row's price jumps. PERF: H100, 120b, ms a step of streams: 8 rows 14.2, 9
rows 29.1, 16 rows 40.6; of a draft 13.7, 17.5, 19.8 (bench/results/row-costs.md).
"""
_DRAFTS_S, _STREAMS_S = 1.5, 3.0  # no wider steps are measured after so long
_REPEAT_S = 0.05  # nor is one repeated that takes longer
_LEARN = 0.1  # weight of a new step
_NOTABLE = 0.02  # smaller changes do not matter
_WIDE = 8  # up to so many streams a step with all of them is always the best: see WIDTHS
_MIN_GAIN = 1.05  # a draft, or a split, must promise so much, as promises are often broken
_TURN_SHARE = 0.03  # of a turn's time to begin it
_MAX_TURN_S = 0.1  # the others wait so long, which a reader hardly sees

_SHARE = 3e-6  # H100, H200: bench/results/cached-cells.md
_N_KNOWN = 256 * 8192.0**2  # its weight: of 256 steps, each 8,192 cells off the average
_READ_S = 5e-5  # 25 KB at 500 MB/s
_LEAST_S = 5.0
_N_LEARN = 128  # tokens: fewer take longer each

TARGET_S = 0.075  # while other sequences wait for their next token
_MIN_TOKENS = 32

Rows = tuple[tuple[int, int], ...]
"""The sequences of a step: the index of each one's slot, and its number of rows."""


class Table:
    """Seconds of a step by its rows, interpolated between the widths that were measured."""

    def __init__(self, known: Iterable[tuple[int, float]] = ()) -> None:
        self._seconds = dict(known)
        self._table = [math.inf] * (WIDTHS[-1] + 1)  # PERF: of all widths, rebuilt when one moves
        self._tabulate()

    @property
    def is_known(self) -> bool:
        return bool(self._seconds)

    def items(self) -> list[tuple[int, float]]:
        return sorted(self._seconds.items())

    def seconds(self, n_rows: int) -> float:
        """Return the seconds of a step of `n_rows` rows; infinite beyond the measured widths."""
        return self._table[n_rows] if n_rows < len(self._table) else math.inf

    def measure(self, decode: Callable[[int], None], n_rows_max: int, limit_s: float) -> None:
        """Time `decode(n_rows)` for `limit_s` at most, narrow steps and powers of two first."""
        end_s = time.monotonic() + limit_s
        widths = {*(w for w in WIDTHS if w < n_rows_max), n_rows_max}
        for width in sorted(widths, key=lambda w: (w.bit_count() > 1, w)):
            timed(decode, width)  # NOTE: the first takes a GPU 81 ms, the next 3
            seconds = timed(decode, width)
            if seconds < _REPEAT_S:  # PERF: few steps, as the model is being loaded
                seconds = min(seconds, timed(decode, width))
            self._seconds[width] = seconds
            if time.monotonic() > end_s:
                break
        self._tabulate()

    def learn(self, n_rows: int, step_s: float) -> None:
        if (known := self._seconds.get(n_rows)) is None:
            return
        # NOTE: a step that was held up by the machine must not teach much
        now = known + _LEARN * (min(step_s, 2 * known) - known)
        self._seconds[n_rows] = now
        if abs(now - self._table[n_rows]) > _NOTABLE * now:
            self._tabulate()

    def _tabulate(self) -> None:
        known = self.items()
        for (below, low), (above, high) in pairwise([*known[:1], *known]):
            for width in range(below, above + 1):
                share = (width - below) / max(1, above - below)
                self._table[width] = low + share * (high - low)


class StepCosts:
    """Seconds of a decode step by its rows: measured at the start and updated since.

    A step of another form than the one before takes longer, as llama.cpp rebuilds its graph, and so
    does the second of that form, as CUDA records it (H100: 4 and 3 ms). A draft pays for both there
    and back, unless the step before was as wide; streams that take turns pay in every turn.
    """

    def __init__(self) -> None:
        self.drafts = Table()  # steps in which (nearly) all rows belong to one sequence
        self.streams = Table()  # with one row of each of several sequences; empty: unknown
        self.switch_s = 0.0  # extra cost of a step of another width and of two back
        self.turn_s = 0.0  # extra cost of two steps with other sequences than the step before
        self._rows: Rows = ((0, 1),)  # of the step before
        self._n_alike = self._n_changed = 0  # steps of one form now, and changes of width before
        self._excess_s = 0.0  # of these
        self._turn_excess_s: float | None = None  # of the first step of a turn

    def measure_drafts(self, decode: Callable[[int], None], n_rows_max: int) -> None:
        self.drafts.measure(decode, n_rows_max, _DRAFTS_S)
        widest, seconds = self.drafts.items()[-1]
        if seconds < _REPEAT_S:  # otherwise the switch does not matter
            timed(decode, 1)
            switched_s = min(timed(decode, widest, 1, 1), timed(decode, widest, 1, 1))
            self.switch_s = max(0.0, switched_s - seconds - 2 * self.drafts.seconds(1))

    def measure_streams(self, decode: Callable[[int, int], None], n_streams: int) -> None:
        """Time `decode(first, n_rows)`: a row of each of `n_rows` sequences from `first` on."""
        self.streams.measure(lambda n_rows: decode(0, n_rows), n_streams, _STREAMS_S)
        if math.isinf(self.streams.seconds(n_streams)):
            self.streams = Table()  # slow steps: without all measures nothing can be compared
            return
        width = n_streams // 2

        def take_turns(n_turns: int) -> None:
            for turn in range(n_turns):
                for _ in range(2):
                    decode(width * (turn % 2), width)

        timed(take_turns, 4)
        turn_s = min(timed(take_turns, 2), timed(take_turns, 2)) / 2
        self.turn_s = max(0.0, turn_s - 2 * self.streams.seconds(width))

    def know(self, times: StepTimes) -> None:
        self.drafts, self.switch_s = Table(times.seconds), times.switch_s
        self.streams, self.turn_s = Table(times.streams), times.turn_s

    def times(self) -> StepTimes | None:
        drafts, streams = tuple(self.drafts.items()), tuple(self.streams.items())
        if not drafts and not streams:
            return None
        return StepTimes(drafts, self.switch_s, streams, self.turn_s)

    def observe(self, rows: Rows, step_s: float) -> None:
        """Learn from a step. A step with tokens of a prompt has no `rows`, and is ignored."""
        n_rows, before = total(rows), self._rows
        n_before, has_draft, self._rows = total(before), n_rows > len(rows), rows
        is_alike = n_rows == n_before and (has_draft or rows == before)
        self._n_alike = self._n_alike + 1 if is_alike else 0
        if n_rows != n_before:
            self._turn_excess_s = None
        if self._n_alike > 1:
            if len(rows) == 1 or not self.streams.is_known:
                self.drafts.learn(n_rows, step_s)
            if not has_draft:
                self.streams.learn(n_rows, step_s)
        elif n_rows == n_before and (not is_alike or self._turn_excess_s is not None):
            excess_s = _excess_s(step_s, self.streams.seconds(n_rows))
            if self._turn_excess_s is not None and is_alike:
                self.turn_s += _LEARN * (self._turn_excess_s + excess_s - self.turn_s)
            self._turn_excess_s = excess_s if self.streams.is_known and not is_alike else None
        elif len(rows) == len(before) == 1:
            self._learn_switch(_excess_s(step_s, self.drafts.seconds(n_rows)))
        else:
            self._n_changed, self._excess_s = 0, 0.0

    def _learn_switch(self, excess_s: float) -> None:
        self._excess_s += excess_s
        if self._n_alike == 0:
            self._n_changed += 1
            return
        if self._n_changed > 1:
            switch_s = 2 * self._excess_s / self._n_changed
            self.switch_s += _LEARN * (switch_s - self.switch_s)
        self._n_changed, self._excess_s = 0, 0.0

    def plain_s(self, n_streams: int) -> float:
        return (self.streams if self.streams.is_known else self.drafts).seconds(n_streams)

    def n_streams(self, n: int) -> int:
        """Return how many of `n` streams a step should decode, so that all get the most tokens.

        PERF: H100, 120b, 12 streams: 34.4 ms a step with all of them, 16.2 with 8 in turn.
        """
        best, best_rate = n, _MIN_GAIN * n / self.streams.seconds(n)
        if best_rate > 0:
            for width, seconds in self.streams.items():
                if width >= n:
                    continue
                rate = width / (seconds + self.turn_s / self.n_turn_steps(width))
                if rate > best_rate:
                    best, best_rate = width, rate
        return best

    def n_turn_steps(self, n_streams: int) -> int:
        """Return how many steps a turn should have, so that little of it goes into its start."""
        step_s = self.streams.seconds(n_streams)
        n_steps = math.ceil(self.turn_s / (_TURN_SHARE * step_s))
        return max(2, min(n_steps, int(_MAX_TURN_S / step_s)))

    def draft_length(self, n_rows: int, acceptance: float, n_max: int) -> int:
        """Return how many tokens to draft for one sequence, for the most tokens per second.

        `n_rows` counts the step without the draft. `acceptance` is the chance that a token of the
        draft is right, given those before it.
        """
        without_s, n_before = self.plain_s(n_rows), total(self._rows)
        best, best_rate = 0, _MIN_GAIN * n_rows / without_s
        for width in (w for w in WIDTHS if w > n_rows and n_max > 0):
            n_draft = min(width - n_rows, n_max)
            n_expected = acceptance * (1 - acceptance**n_draft) / (1 - acceptance)
            more_s = self.drafts.seconds(n_rows + n_draft) - self.drafts.seconds(n_rows)
            switch_s = self.switch_s if n_rows + n_draft != n_before else 0.0
            rate = (n_rows + n_expected) / (without_s + more_s + switch_s)
            if rate > best_rate:
                best, best_rate = n_draft, rate
            if n_draft == n_max:
                break
        return best


def total(rows: Rows) -> int:
    return sum(n for _, n in rows)


def _excess_s(step_s: float, steady_s: float) -> float:
    return min(max(0.0, step_s - steady_s), 2 * steady_s)  # a stall must not teach much


def timed(decode: Callable[[int], None], *widths: int) -> float:
    start_s = time.monotonic()
    for width in widths:
        decode(width)
    return time.monotonic() - start_s


def measured_costs(
    context: Context, n_draft_max: int, n_streams: int, known: StepTimes | None
) -> StepCosts:
    """Time steps of sequences that are empty before and after, unless `known`.

    An `n_draft_max` of 0 skips drafts. Streams are timed if `n_streams` may be too many for a step.
    """
    costs, batch = StepCosts(), Batch(context.n_batch)

    def decode(first: int, n_sequences: int, n_rows: int) -> None:
        """Decode different tokens, as equal ones choose the same experts and cost too little."""
        batch.clear()
        for seq_id in range(first, first + n_sequences):
            tokens = [7919 * (seq_id + i + 1) % context.n_vocab for i in range(n_rows)]
            batch.extend(tokens, 0, seq_id, n_outputs=n_rows)
        context.decode_batch(batch)
        context.synchronize()
        for seq_id in range(first, first + n_sequences):
            context.remove(seq_id)

    if known is not None:
        costs.know(known)
        decode(0, 1, 1)  # the first one is slow, which no request should have to wait for
        return costs
    if n_draft_max > 0:
        costs.measure_drafts(lambda n_rows: decode(0, 1, n_rows), 1 + n_draft_max)
    if n_streams > _WIDE:
        costs.measure_streams(lambda first, n_rows: decode(first, n_rows, 1), n_streams)
    return costs


class IdleCosts:
    """Learn the cost of idle conversations in the cache, and of computing or reading them again.

    llama.cpp's attention covers all cells in use, so each makes every step longer by about the same
    share: the slope of a line through steps of one stream, or `_SHARE` at first.
    """

    def __init__(self) -> None:
        self.busy_s = 0.0  # of all steps
        self.prefill_s, self.read_s = math.inf, _READ_S  # to compute a token, or read it from disk
        self._n = 0
        self._cells = self._step_s = 0.0  # on average
        self._variance = self._covariance = 0.0  # of cells, and of cells and seconds: sums

    @property
    def share(self) -> float:
        if not self._step_s:
            return _SHARE
        slope = self._covariance + _N_KNOWN * _SHARE * self._step_s
        return max(0.0, slope / (self._variance + _N_KNOWN) / self._step_s)

    def cost_s(self, since_busy_s: float) -> float:
        """Return the cost of each cell since then; 0 in the first seconds."""
        busy_s = self.busy_s - since_busy_s
        return self.share * busy_s if busy_s > _LEAST_S else 0.0

    def learn_step(self, n_rows: int, n_cells: int, step_s: float) -> None:
        self.busy_s += step_s
        if n_rows != 1:
            return
        self._n += 1
        step_s = min(step_s, 2 * self._step_s or step_s)  # a stall must not teach much
        off = n_cells - self._cells
        self._cells += off / self._n
        self._step_s += (step_s - self._step_s) / self._n
        self._variance += off * (n_cells - self._cells)
        self._covariance += off * (step_s - self._step_s)

    def learn_prefill(self, n_tokens: int, step_s: float, *, is_alone: bool) -> None:
        self.busy_s += step_s
        if is_alone and n_tokens >= _N_LEARN:
            self.prefill_s = _learned(self.prefill_s, step_s / n_tokens)

    def learn_read(self, n_tokens: int, seconds: float) -> None:
        self.read_s = _learned(self.read_s, seconds / n_tokens)


def _learned(known: float, now: float) -> float:
    return now if math.isinf(known) else known + _LEARN * (now - known)


class PrefillPace:
    """Sizes prefill chunks so that a step takes about `target_s`, learning from every step.

    Chunks that are smaller than `n_max`, the batch, have a multiple of `n_unit` tokens. The pace
    changes by a factor of two a step at most, as machines stall at times.
    """

    def __init__(
        self, n_max: int, target_s: float = TARGET_S, *, n_first: int = _MIN_TOKENS, n_unit: int = 1
    ) -> None:
        self._n_max, self._n_unit, self._target_s = n_max, n_unit, target_s
        self._n_min = min(max(_MIN_TOKENS, n_unit), n_max)
        self.n_tokens = min(n_first, n_max)

    def observe(self, n_prefilled: int, step_s: float) -> None:
        if 2 * n_prefilled < self.n_tokens:
            return
        wanted = n_prefilled * self._target_s / max(step_s, 1e-6)
        wanted = min(max(wanted, self.n_tokens / 2), 2 * self.n_tokens)
        n_tokens = round(wanted / self._n_unit) * self._n_unit
        self.n_tokens = min(max(n_tokens, self._n_min), self._n_max)
