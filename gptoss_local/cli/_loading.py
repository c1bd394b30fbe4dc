"""A load that the server does, watched: one bar, whatever number of tries it takes."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gptoss_local.cli._output import progress_bar
from gptoss_local.errors import UnauthorizedError
from gptoss_local.models.catalog import canonical_name
from gptoss_local.types import Progress

if TYPE_CHECKING:
    from gptoss_local.api.client import Client


def show_load(client: "Client", body: dict[str, Any], *, if_interrupted: str = "") -> None:
    """Load a model with a bar on a terminal; elsewhere nothing happens: a question loads it, too.

    Args:
        client: Of the server.
        body: As for `follow_load`.
        if_interrupted: As for `progress_bar`.

    Raises:
        GptOssError: it cannot be loaded.
    """
    if sys.stderr.isatty():
        with suppress(UnauthorizedError), progress_bar(if_interrupted=if_interrupted) as bar:
            follow_load(client, body, bar)  # a user's key leaves that to the question


def continues(model: str) -> str:
    """Say what becomes of a load whose command was ended: other clients may wait for it."""
    return f"The load continues; `gptoss stop {model}` ends it."


def follow_load(client: "Client", body: dict[str, Any], progress: Progress) -> int:
    """Load a model and report the bytes of its weights; returns how many tries it took.

    Args:
        client: Of the server.
        body: Of the request: `model`, and `options` and `keep_alive` as for an answer.
        progress: Its first argument is `loading MODEL`.

    Raises:
        GptOssError: it cannot be loaded.
        KeyboardInterrupt: the load continues, as other clients may wait for it.
    """
    frames = client.stream("/api/gptoss/load", body)
    n_tries = 0
    try:
        for frame in frames:
            n_tries = frame.get("n_tries", 0) or n_tries
            if total := frame.get("total", 0):
                progress(f"loading {body['model']}", frame["completed"], total)
    finally:
        frames.close()
    return n_tries


def loaded_model(client: "Client", model: str) -> dict[str, Any] | None:
    """Return what `GET /api/ps` says of a model; None if it is not in memory."""
    name = canonical_name(model)
    found: list[dict[str, Any]] = client.get("/api/ps")["models"]
    return next((each for each in found if each["name"] == name), None)


def warn_if_smaller(loaded: dict[str, Any] | None, n_ctx: int | None) -> None:
    """Warn if a model was loaded with less context than requested: it cannot read more."""
    if n_ctx is not None and loaded is not None and loaded["context_length"] < n_ctx:
        print(
            f"{loaded['name']} reads {loaded['context_length']:,} tokens at most, not {n_ctx:,}.",
            file=sys.stderr,
        )


def load_text(status: dict[str, Any]) -> str:
    """Say how far a load of `GET /api/gptoss/status` is, e.g. `loading 35 %, 12 s left`."""
    if not (total := status["total"]):
        return str(status["status"])
    text = f"{status['status']} {100 * status['completed'] // total} %"
    left_s = status["seconds_left"]
    return text if not left_s else f"{text}, {left_s:.0f} s left"
