"""Prints for all commands: data on stdout, messages and progress on stderr."""

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.printable import on_one_line
from gptoss_local.base.progress import each_step, each_tenth
from gptoss_local.base.types import Progress

JSON_VERSION = 1
INTERRUPTED = 130  # the exit code after Ctrl-C
RESUMABLE = "Interrupted. Run the same command again to resume."

_HOUR_S, _DAY_S = 3600, 86_400
_GAP, _LEAST_CELLS = 4, 12  # between columns, and of one that wraps
_MAX_CELLS = 48  # of a title or of another text in a table
Cell = str | tuple[str, ...]
"""Content of a table's cell; of several pieces every second one is bold on a terminal."""

DIM, RESET = "\x1b[2m", "\x1b[0m"

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
    return os.environ.get("ACCESSIBLE", "") not in ("", "0")


def is_linear() -> bool:
    """Return whether text can only be added: the terminal cannot be drawn on, or is read aloud."""
    return os.environ.get("TERM") == "dumb" or is_read_aloud()


def is_plain() -> bool:
    """Return whether the terminal gets no control sequences."""
    return bool(os.environ.get("NO_COLOR")) or is_linear()


def print_json(**data: Any) -> None:
    text = msgspec.json.encode({"version": JSON_VERSION, **data}, enc_hook=os.fspath)  # paths
    print(text.decode(), flush=True)


def report(text: str, *, as_json: bool, **data: Any) -> None:
    print_json(**data) if as_json else say(text)


def print_list(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], *, as_json: bool, **data: Any
) -> None:
    print_json(**data) if as_json else print_table(header, rows)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.cells import cell_len

    table = [[_pieces(cell) for cell in row] for row in (header, *rows)]
    widths = [
        max(cell_len("".join(cell)) for cell in column) for column in zip(*table, strict=True)
    ]
    if sys.stdout.isatty():
        _print_wrapped(table, widths)
        return
    for row in table:
        texts = zip(map("".join, row), widths, strict=True)
        print("".join(t + " " * (width - cell_len(t) + _GAP) for t, width in texts).rstrip())


def _print_wrapped(table: Sequence[Sequence[tuple[str, ...]]], widths: list[int]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    from gptoss_local.cli._console import CleanConsole

    console, styles, n_gaps = CleanConsole(), ("", "" if is_plain() else "bold"), len(widths) - 1
    gap = _GAP if sum(widths) + _GAP * n_gaps <= console.width else _GAP // 2
    n_over = sum(widths) + gap * n_gaps - console.width
    for n in sorted(range(len(widths)), key=widths.__getitem__, reverse=True):
        n_cut = max(0, min(n_over, widths[n] - _LEAST_CELLS))
        widths[n], n_over = widths[n] - n_cut, n_over - n_cut
    columns = (Column(width=width, overflow="fold") for width in widths)
    grid = Table.grid(*columns, padding=(0, gap, 0, 0))
    for row in table:
        cells = [[(piece, styles[n % 2]) for n, piece in enumerate(cell)] for cell in row]
        grid.add_row(*(Text.assemble(*cell) for cell in cells))
    console.print(grid, soft_wrap=False)


def _pieces(cell: Cell) -> tuple[str, ...]:
    return tuple(map(on_one_line, (cell,) if isinstance(cell, str) else cell))


def shortened(text: str) -> str:
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.split())
    if cell_len(line) <= _MAX_CELLS:
        return line
    return f"{set_cell_size(line, _MAX_CELLS - 1).rstrip()}…"


def print_names(names: Iterable[str]) -> None:
    for name in names:
        print(on_one_line(name))


def print_facts(facts: Mapping[str, str], file: TextIO | None = None) -> None:
    """Print a line per fact, its name in a column; further lines of a value are indented."""
    for name, value in facts.items():
        first, *others = value.splitlines() or [""]
        print(f"{on_one_line(name):<16}{first}", file=file)
        for line in others:
            print(f"{'':<16}{line}".rstrip(), file=file)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def say_rows(title: str, rows: Sequence[tuple[str, str]], before: str = "") -> None:
    width = max(len(before + name) for name, _ in rows) + 2
    say(title)
    for name, text in rows:
        say(f"  {before + name:<{width}}{text}")


@contextmanager
def progress_bar(
    *, tenths: bool = False, quiet: bool = False, if_interrupted: str = ""
) -> Iterator[Progress]:
    """Show a bar per step on stderr, with bytes, rate and time left; a total may grow.

    Print nothing else meanwhile. With `tenths`, a stderr that is not a terminal gets a line per 10
    % instead of one per step. `if_interrupted` is said after Ctrl-C, which ends the command.
    """
    try:
        with _shown_progress(tenths=tenths, quiet=quiet) as report:
            yield report
    except KeyboardInterrupt:
        if not if_interrupted:
            raise
        print(if_interrupted, file=sys.stderr)
        sys.exit(INTERRUPTED)


@contextmanager
def _shown_progress(*, tenths: bool, quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield lambda what, done, total: None
        return
    if not sys.stderr.isatty() or is_plain():
        make, ending = (each_tenth, "") if tenths else (each_step, " …")
        yield make(lambda line: print(f"{line}{ending}", file=sys.stderr, flush=True))
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    from gptoss_local.cli._console import CleanConsole

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    rate = (TransferSpeedColumn(), TimeRemainingColumn())
    console = CleanConsole(stderr=True)
    # Otherwise Rich would restyle the output of others.
    bar = Bar(*columns, *rate, console=console, redirect_stdout=False, redirect_stderr=False)
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int) -> None:
        bar.start()  # with the first report, as often there is nothing to do
        if what not in tasks:  # the work of an earlier run counts for no rate
            tasks[what] = bar.add_task(what, total=total, completed=done)
        bar.update(tasks[what], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            bar.stop()


def human_age(seconds: float) -> str:
    """Return a duration in words, e.g. `3 hours`. Source: Ollama's format/time.go."""
    if seconds < 1:
        return "Less than a second"
    if seconds >= _HOUR_S:
        seconds = round(seconds / _HOUR_S) * _HOUR_S
    name, unit_s = next((name, unit_s) for name, unit_s, end_s in _UNITS if seconds < end_s)
    n = int(seconds // unit_s)
    if n == 1 and name in _ABOUT:
        return _ABOUT[name]
    return f"{n} {name}{'s' if n > 1 else ''}"


def print_error(error: GptOssError) -> None:
    print(f"gptoss: {_set_in(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {_set_in(error.hint)}", file=sys.stderr)


def _set_in(text: str) -> str:
    return re.sub(r"\n(?! )", "\n  ", text)
