"""`gptoss logs`: what the server said that `run` and others start in the background."""

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import print_json, say
from gptoss_local.settings import load_settings

_POLL_S = 0.2


def logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing what is added, until Ctrl-C.")
    ] = False,
    n_lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Lines to begin with.")
    ] = 100,
    json: Json = False,
) -> None:
    """Show the end of the server's log. `gptoss serve` logs to its own terminal instead."""
    path = load_settings().server_log
    if not path.is_file():
        say(f"there is no log yet: {path}")
    for line in _lines(path, n_lines, follow):
        if json:
            print_json(line=line)
        else:
            print(line, flush=follow)


def _lines(path: Path, n_last: int, follow: bool) -> Iterator[str]:
    while follow and not path.is_file():
        time.sleep(_POLL_S)
    if not path.is_file():
        return
    file = _open(path)
    try:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=n_last))
        pending = ""
        while follow:
            pending += file.readline()
            if pending.endswith("\n"):
                yield pending[:-1]
                pending = ""
            elif _is_replaced(file, path):
                file.close()
                file = _open(path)
            else:
                time.sleep(_POLL_S)
    finally:
        file.close()


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _is_replaced(file: TextIO, path: Path) -> bool:
    """A server that starts replaces a large log."""
    return path.is_file() and not os.path.samestat(os.fstat(file.fileno()), path.stat())
