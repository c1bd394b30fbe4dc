"""Progress of long work where there is no bar: a log, a pipe."""

import time
from collections.abc import Callable

from rich.filesize import decimal

from gptoss_local.base.types import Progress


def each_step(say: Callable[[str], None]) -> Progress:
    """Make a Progress that says the name of every step once, when it begins."""
    last = ""

    def report(what: str, _done: int, _total: int) -> None:
        nonlocal last
        if what != last:
            last = what
            say(what)

    return report


def each_tenth(say: Callable[[str], None]) -> Progress:
    """Make a Progress that says bytes, rate and time left once per 10 % of each step."""
    steps: dict[str, _Tenths] = {}

    def report(what: str, done: int, total: int) -> None:
        step = steps.setdefault(what, _Tenths(done))
        if line := step.line(done, total):
            say(f"{what}: {line}")

    return report


class _Tenths:
    def __init__(self, n_before: int) -> None:
        self._n_before, self._start_s, self._last = n_before, time.monotonic(), 0

    def line(self, done: int, total: int) -> str:
        tenth = 10 * done // max(total, 1)
        if tenth <= self._last:
            return ""
        self._last = tenth
        line = f"{10 * tenth} %, {decimal(done)} of {decimal(total)}"
        seconds = time.monotonic() - self._start_s
        if done > self._n_before and seconds > 0:
            rate = (done - self._n_before) / seconds
            line += f", {decimal(int(rate))}/s"
            if done < total:
                line += f", {(total - done) / rate:.0f} s left"
        return line
