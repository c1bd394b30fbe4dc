"""`gptoss pull`: a model of the catalogue, downloaded and converted by the server."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from gptoss_local.cli._options import INTERRUPTED, Json, Quiet, running_server
from gptoss_local.cli._output import print_json, progress_bar
from gptoss_local.settings import load_settings
from gptoss_local.types import Progress


def pull(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model of the catalogue, as gpt-oss:20b.")
    ],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Download MODEL and convert it meanwhile.

    What was interrupted is continued by the same command. With --json: a line per report, the last
    one with "event": "done".
    """
    client = running_server(load_settings())
    frames = client.stream("/api/pull", {"model": model})
    try:
        with progress_bar(tenths=True, quiet=quiet or json) as bar:
            was_here = _follow(frames, _print_as_json if json else bar)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        frames.close()  # the server ends the pull when nobody watches it
    if json:
        print_json(event="done", model=model, was_here=was_here)
    elif not quiet:
        what = "is on this machine already" if was_here else "is ready"
        print(f"{model} {what}: gptoss run {model}", file=sys.stderr)


def _follow(frames: Iterable[dict[str, Any]], progress: Progress) -> bool:
    """Report the bytes of each step, never fewer than before; True if there was nothing to do."""
    most: dict[str, int] = {}
    for frame in frames:
        if not (total := frame.get("total", 0)):
            continue
        step = "download" if "digest" in frame else frame["status"]
        most[step] = max(most.get(step, 0), frame.get("completed", 0))
        progress(step, most[step], total)
    return not most


def _print_as_json(step: str, done: int, total: int) -> None:
    print_json(event="progress", step=step, completed_bytes=done, total_bytes=total)
