"""Prepares the measurements of `gptoss bench` and `gptoss tune`."""

import sys

from gptoss_local.settings import Settings

_LOOK_S, _BUSY_PERCENT = 0.3, 25


def warn_if_busy() -> None:
    import psutil

    percent = psutil.cpu_percent(_LOOK_S)
    if percent > _BUSY_PERCENT:
        print(
            f"other programs use {percent:.0f} % of the processor: figures will be too low",
            file=sys.stderr,
        )


def unload(name: str, settings: Settings) -> None:
    """Have a server unload the model, so that it is measured with all of the memory."""
    from gptoss_local.api.client import Client
    from gptoss_local.errors import ServerUnavailableError

    client = Client(settings)
    try:
        is_running = client.is_running()
    except ServerUnavailableError:  # another program's, as Ollama's; measuring needs no server
        return
    if is_running and name in (model.name for model in client.running_models()):
        client.unload(name)
