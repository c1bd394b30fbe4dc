"""Model names for the shell: `gptoss __complete KIND` prints one per line (see `completion`).

It runs at every Tab: no typer, httpx or numpy, and no word of what goes wrong, which would end up
in the middle of the user's command line.
"""

import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from gptoss_local.errors import GptOssError
from gptoss_local.settings import Settings, load_settings

NameKind = Literal["installed", "loaded", "known"]

_TIMEOUT_S, _MAX_BYTES = 0.5, 1 << 20
# Any file of the models folder is a name, and a shell might obey what one says.
_PLAIN = re.compile(r"[a-z0-9_.:/-]+")


class _Named(msgspec.Struct):
    name: str


class _Running(msgspec.Struct):
    models: list[_Named]


def print_names(kinds: Sequence[str]) -> None:
    """Print the names of each kind; none where they cannot be found out."""
    try:
        settings = load_settings()
        names = [name for kind in kinds for name in _names(kind, settings)]
    except GptOssError:  # the command itself will say it
        return
    for name in filter(_PLAIN.fullmatch, names):
        print(name)


def _names(kind: str, settings: Settings) -> list[str]:
    match kind:
        case "installed":
            from gptoss_local.names import installed_names

            return installed_names(settings.models_dir)
        case "known":
            from gptoss_local.catalog import catalog

            return [model.name for model in catalog() if model.repo]
        case "loaded":
            return _loaded(settings)
        case _:
            return []


def _loaded(settings: Settings) -> list[str]:
    """Return the names of the models that the server has in memory.

    PERF: a socket, as importing http.client takes 15 ms, and httpx 60.
    """
    import socket

    url = urlsplit(settings.url)
    key = f"Authorization: Bearer {settings.api_key}\r\n" if settings.api_key else ""
    request = f"GET /api/ps HTTP/1.0\r\nHost: {url.netloc}\r\n{key}\r\n"
    try:
        with socket.create_connection((url.hostname or "", url.port or 0), _TIMEOUT_S) as server:
            server.sendall(request.encode())
            answer = server.makefile("rb").read(_MAX_BYTES)
        running = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Running)
    except (OSError, msgspec.DecodeError):  # no server, or another one
        return []
    return [model.name for model in running.models]
