"""Progress of long work where there is no bar: a log, a pipe."""

from collections.abc import Callable

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
