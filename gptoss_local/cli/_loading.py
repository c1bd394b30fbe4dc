"""A load that the server does, watched: one bar, whatever number of tries it takes."""

import sys
from typing import TYPE_CHECKING, Any

import typer

from gptoss_local.cli._options import INTERRUPTED
from gptoss_local.cli._output import progress_bar
from gptoss_local.types import Progress

if TYPE_CHECKING:
    from gptoss_local.client import Client


def show_load(client: "Client", model: str) -> None:
    """Load a model with a bar on a terminal; elsewhere nothing happens: a question loads it, too.

    Raises:
        GptOssError: it cannot be loaded.
    """
    if sys.stderr.isatty():
        with progress_bar() as bar:
            follow_load(client, {"model": model}, bar)


def follow_load(client: "Client", body: dict[str, Any], progress: Progress) -> int:
    """Load a model and report the bytes of its weights; returns how many tries it took.

    Args:
        client: Of the server.
        body: Of the request: `model`, and `options` and `keep_alive` as for an answer.
        progress: Its first argument is `loading MODEL`.

    Raises:
        GptOssError: it cannot be loaded.
        typer.Exit: Ctrl-C. The load goes on, as other clients may wait for it.
    """
    frames = client.stream("/api/gptoss/load", body)
    n_tries = 0
    try:
        for frame in frames:
            n_tries = frame.get("n_tries", 0) or n_tries
            if total := frame.get("total", 0):
                progress(f"loading {body['model']}", frame["completed"], total)
    except KeyboardInterrupt:
        name = body["model"]
        print(f"the load goes on; `gptoss stop {name}` ends it", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        frames.close()
    return n_tries


def load_text(status: dict[str, Any]) -> str:
    """How far a load of `GET /api/gptoss/status` is, e.g. `loading 35 %, 12 s left`."""
    if not (total := status["total"]):
        return str(status["status"])
    text = f"{status['status']} {100 * status['completed'] // total} %"
    left_s = status["seconds_left"]
    return text if not left_s else f"{text}, {left_s:.0f} s left"
