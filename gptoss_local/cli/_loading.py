"""Watch a load of the server: one bar for any number of tries."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gptoss_local.api.models import LoadStatus, RunningModel
from gptoss_local.base.errors import UnauthorizedError
from gptoss_local.base.types import Progress
from gptoss_local.cli._output import progress_bar, say
from gptoss_local.models.catalog import canonical_name

if TYPE_CHECKING:
    from gptoss_local.api.client import Client


def show_load(client: "Client", body: dict[str, Any], *, if_interrupted: str = "") -> None:
    """Load a model with a bar on a terminal; elsewhere the question loads it."""
    if sys.stderr.isatty():
        with suppress(UnauthorizedError), progress_bar(if_interrupted=if_interrupted) as bar:
            follow_load(client, body, bar)  # a user's key leaves that to the question


def continues(model: str) -> str:
    return f"The load continues; `gptoss stop {model}` ends it."


def follow_load(client: "Client", body: dict[str, Any], progress: Progress) -> int:
    """Load a model and report the bytes of its weights; return how many tries it took.

    `body` has the `model`, and `options` and `keep_alive` as for an answer. After Ctrl-C the load
    continues, as other clients may wait for it.
    """
    frames = client.stream("/api/gptoss/load", body, LoadStatus)
    n_tries = 0
    try:
        for frame in frames:
            n_tries = frame.n_tries or n_tries
            if frame.total:
                progress(f"loading {body['model']}", frame.completed, frame.total)
    finally:
        frames.close()
    return n_tries


def loaded_model(client: "Client", model: str) -> RunningModel | None:
    name = canonical_name(model)
    return next((each for each in client.running_models() if each.name == name), None)


def warn_if_smaller(loaded: RunningModel | None, n_ctx: int | None) -> None:
    if n_ctx is not None and loaded is not None and loaded.context_length < n_ctx:
        say(f"{loaded.name} reads {loaded.context_length:,} tokens at most, not {n_ctx:,}.")


def load_text(load: LoadStatus) -> str:
    if not load.total:
        return load.status
    text = f"{load.status} {100 * load.completed // load.total} %"
    return text if not load.seconds_left else f"{text}, {load.seconds_left:.0f} s left"
