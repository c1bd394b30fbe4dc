"""How commands print: data on stdout, talk and progress on stderr."""

import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from gptoss_local.errors import GptOssError
from gptoss_local.progress import each_step, each_tenth
from gptoss_local.types import Progress

JSON_VERSION = 1


def print_json(**data: Any) -> None:
    """Print one JSON object with the version of its format."""
    print(msgspec.json.encode({"version": JSON_VERSION, **data}).decode(), flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as Ollama does: upper-case header, four spaces between."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
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
    """One bar per step on stderr, with bytes, rate and time left.

    Args:
        tenths: Where stderr is no terminal, print a line per 10 % instead of one per step.
        quiet: Show nothing.
    """
    if quiet:
        yield lambda what, done, total: None
        return
    if not sys.stderr.isatty():
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
            bar.update(tasks[what], completed=done)

        yield report


def human_age(seconds: float) -> str:
    """A duration in its largest unit, e.g. `3 hours`."""
    for name, unit_s in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= unit_s:
            n = int(seconds // unit_s)
            return f"{n} {name}{'s' if n > 1 else ''}"
    return "less than a minute"


def seconds_until(timestamp: str) -> float:
    moment = datetime.datetime.fromisoformat(timestamp)
    return (moment - datetime.datetime.now(datetime.UTC)).total_seconds()


def print_error(error: GptOssError) -> None:
    """What happened, and below it what to do."""
    print(f"gptoss: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
