"""Progress of long work where there is no bar: a log, a pipe."""

import time
from collections import defaultdict
from collections.abc import Callable

from rich.filesize import decimal

from gptoss_local.types import Progress


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
    """Make a Progress that says a line of bytes, rate and time left per 10 % of each step.

    Several tenths passed at once are one line; what was done at the first call counts for no rate.
    """
    steps: defaultdict[str, Progress] = defaultdict(lambda: _tenths_of_one(say))
    return lambda what, done, total: steps[what](what, done, total)


def _tenths_of_one(say: Callable[[str], None]) -> Progress:
    last, start_s, n_before = 0, time.monotonic(), -1

    def report(what: str, done: int, total: int) -> None:
        nonlocal last, start_s, n_before
        if n_before < 0:
            n_before, start_s = done, time.monotonic()
        tenth = 10 * done // max(total, 1)
        if tenth <= last:
            return
        last = tenth
        line = f"{what}: {10 * tenth} %, {decimal(done)} of {decimal(total)}"
        seconds = time.monotonic() - start_s
        if done > n_before and seconds > 0:
            rate = (done - n_before) / seconds
            line += f", {decimal(int(rate))}/s"
            if done < total:
                line += f", {(total - done) / rate:.0f} s left"
        say(line)

    return report
