"""`gptoss completion`: a script that asks `gptoss __complete` for candidates at every Tab.

It asks the command as it was typed, so the one that will run; no shell evaluates its output.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import typer

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.settings import Settings, load_settings

_TIMEOUT_S = 0.5
# Any file of the models folder is a name, and a shell might obey one.
_PLAIN = re.compile(r"[a-z0-9_.:/-]+")


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"], typer.Argument(help="Which shell.")
    ],
) -> None:
    """bash, zsh: source <(gptoss completion bash); fish: gptoss completion fish | source;
    PowerShell: gptoss completion powershell | Out-String | Invoke-Expression. In a start-up file
    this works in every new terminal.
    """
    name = f"gptoss.{'ps1' if shell == 'powershell' else shell}"
    file = Path(__file__).with_name("completions") / name
    print(file.read_text(encoding="utf-8"), end="")


def print_candidates(words: Sequence[str]) -> None:
    """Print the candidates for the last word; nothing if any word may follow."""
    *before, word = words or [""]
    word = word.strip("\"'")  # Windows PowerShell passes an empty word on only in quotes
    for candidate, about in _candidates(before, word):
        if candidate.startswith(word):
            print(f"{candidate}\t{about}" if about else candidate)


def _candidates(before: Sequence[str], word: str) -> Iterable[tuple[str, str]]:
    from gptoss_local.cli.main import COMMANDS, make_app

    if not before:
        root = {"--help": "Show the help.", "--version": "Show the version."}
        return (root if word.startswith("-") else COMMANDS).items()
    if before[0] not in COMMANDS:
        return ()
    group: Any = typer.main.get_command(make_app(before[:1]))
    command = group.commands[before[0]]
    options = {
        flag: each
        for each in command.get_params(typer.Context(command))
        for flag in (*each.opts, *each.secondary_opts)
        if flag.startswith("-") and not each.hidden
    }
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    pending, n = None, 0
    for each in before[1:]:
        if pending is not None:
            pending = None
        elif each in options and not options[each].is_flag:
            pending = options[each]
        elif not each.startswith("-"):
            n += 1
    if pending is not None:
        return _values(pending, before[0])
    if word.startswith("-"):
        return [(flag, each.help or "") for flag, each in options.items()]
    if n >= len(arguments) and arguments and arguments[-1].nargs == -1:
        n = len(arguments) - 1
    return _values(arguments[n], before[0]) if n < len(arguments) else ()


def _values(parameter: Any, command: str) -> list[tuple[str, str]]:
    words = getattr(parameter.type, "choices", ())
    if (parameter.metavar or "").startswith("MODEL"):
        words = _names("" if parameter.param_type_name == "option" else command)
    elif parameter.metavar == "AGENT":
        from gptoss_local.cli.launch.agents import AGENTS

        words = [*AGENTS]
    return [(str(each), "") for each in words]


def _names(command: str) -> list[str]:
    from gptoss_local.models.catalog import catalog
    from gptoss_local.models.names import installed_names

    try:
        settings = load_settings()
        match command:
            case "stop":
                names = _loaded(settings)
            case "pull":
                names = [model.name for model in catalog() if model.repo]
            case _:
                names = installed_names(settings.models_dir)
    except GptOssError:  # the command itself will say it
        return []
    return list(filter(_PLAIN.fullmatch, names))


def _loaded(settings: Settings) -> list[str]:
    """PERF: a socket, as importing http.client takes 15 ms, and httpx 60."""
    import socket

    from gptoss_local.api.models import RunningModels

    url = urlsplit(settings.url)
    key = f"Authorization: Bearer {settings.api_key}\r\n" if settings.api_key else ""
    request = f"GET /api/ps HTTP/1.0\r\nHost: {url.netloc}\r\n{key}\r\n"
    try:
        with socket.create_connection((url.hostname or "", url.port or 0), _TIMEOUT_S) as server:
            server.sendall(request.encode())
            answer = server.makefile("rb").read(1 << 20)
        running = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=RunningModels)
    except (OSError, msgspec.DecodeError):  # no server, or another one
        return []
    return [model.name for model in running.models]
