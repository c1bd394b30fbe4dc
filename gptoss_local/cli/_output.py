"""How commands print: data on stdout, talk and progress on stderr."""

import datetime
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from gptoss_local.errors import GptOssError
from gptoss_local.progress import each_step, each_tenth
from gptoss_local.types import Progress

JSON_VERSION = 1

_HOUR_S, _DAY_S = 3600, 86_400
_UNITS = (  # name, seconds, up to where it is used
    ("second", 1, 60),
    ("minute", 60, _HOUR_S),
    ("hour", _HOUR_S, 2 * _DAY_S),
    ("day", _DAY_S, 14 * _DAY_S),
    ("week", 7 * _DAY_S, 60 * _DAY_S),
    ("month", 30 * _DAY_S, 730 * _DAY_S),
    ("year", 365 * _DAY_S, math.inf),
)
_ABOUT = {"minute": "About a minute", "hour": "About an hour"}


def is_read_aloud() -> bool:
    """Whether a screen reader reads what we print, by the variable that says so (`ACCESSIBLE`)."""
    return os.environ.get("ACCESSIBLE", "") not in ("", "0")


def is_plain() -> bool:
    """Whether the terminal gets no control sequences, though it is one."""
    is_dumb = os.environ.get("TERM") == "dumb"
    return bool(os.environ.get("NO_COLOR")) or is_dumb or is_read_aloud()


def print_json(**data: Any) -> None:
    """Print one JSON object with the version of its format."""
    text = msgspec.json.encode({"version": JSON_VERSION, **data}, enc_hook=os.fspath)  # paths
    print(text.decode(), flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as Ollama does: upper-case header, four spaces between.

    A Chinese character is as wide as two letters.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        pairs = zip(row, widths, strict=True)
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in pairs)
        print("    ".join(cells).rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """Print a line per fact, its name in a column; further lines of a value are set in."""
    for name, value in facts.items():
        first, *others = value.splitlines() or [""]
        print(f"{name:<16}{first}")
        for line in others:
            print(f"{'':<16}{line}".rstrip())


@contextmanager
def progress_bar(*, tenths: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """One bar per step on stderr, with bytes, rate and time left; a total may grow.

    Args:
        tenths: Where stderr is no terminal, print a line per 10 % instead of one per step.
        quiet: Show nothing.
    """
    if quiet:
        yield lambda what, done, total: None
        return
    if not sys.stderr.isatty() or is_plain():
        make, ending = (each_tenth, "") if tenths else (each_step, " …")
        yield make(lambda line: print(f"{line}{ending}", file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    rate = (TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, *rate, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:  # what an earlier run did counts for no rate
                tasks[what] = bar.add_task(what, total=total, completed=done)
            bar.update(tasks[what], completed=done, total=total)

        yield report


def human_age(seconds: float) -> str:
    """A duration in words, e.g. `3 hours`. Source: Ollama's format/time.go."""
    if seconds < 1:
        return "Less than a second"
    if seconds >= _HOUR_S:
        seconds = round(seconds / _HOUR_S) * _HOUR_S
    name, unit_s = next((name, unit_s) for name, unit_s, end_s in _UNITS if seconds < end_s)
    n = int(seconds // unit_s)
    if n == 1 and name in _ABOUT:
        return _ABOUT[name]
    return f"{n} {name}{'s' if n > 1 else ''}"


def seconds_until(timestamp: str) -> float:
    moment = datetime.datetime.fromisoformat(timestamp)
    return (moment - datetime.datetime.now(datetime.UTC)).total_seconds()


def print_error(error: GptOssError) -> None:
    """What happened, and below it what to do."""
    print(f"gptoss: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
