"""`gptoss completion`: a script that asks `gptoss __complete` for candidates at every Tab.

It asks the command as it was typed, so the one that will run; no shell evaluates its output.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
import typer

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.printable import on_one_line
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import KvType, Preset
from gptoss_local.models.catalog import UpstreamKind, catalog
from gptoss_local.models.names import installed_names

_TIMEOUT_S = 0.5
# Any file of the models folder is a name, and a shell might obey one.
_PLAIN = re.compile(r"[A-Za-z0-9_.:/,-]+")
_LISTS = ("--tools", "--allow")
_N_CHATS, _ABOUT = 20, 90


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
            print(f"{candidate}\t{on_one_line(about)[:_ABOUT]}" if about else candidate)


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
        return _values(pending, before[0], word)
    if word.startswith("-"):
        return [(flag, each.help or "") for flag, each in options.items()]
    if n >= len(arguments) and arguments and arguments[-1].nargs == -1:
        n = len(arguments) - 1
    return _values(arguments[n], before[0], word) if n < len(arguments) else ()


def _values(parameter: Any, command: str, word: str) -> Iterable[tuple[str, str]]:
    """Return the values of an option or argument; of a list, those that may follow its comma."""
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[-1] if is_option else parameter.metavar or parameter.name
    if (parameter.metavar or "").startswith("MODEL"):
        name, command = "MODEL", "" if is_option else command
    found = [(str(each), "") for each in getattr(parameter.type, "choices", ())]
    with suppress(GptOssError):  # the command itself will say it
        found = found or [*_known(name, command, load_settings())]
    before, comma, _ = word.rpartition(",") if name in _LISTS else ("", "", "")
    taken = before.split(",")
    found = [(before + comma + each, about) for each, about in found if each not in taken]
    return [(each, about) for each, about in found if _PLAIN.fullmatch(each)]


def _known(name: str, command: str, settings: Settings) -> Iterable[tuple[str, str]]:
    """Ask this machine's files and at most a running server: a Tab does not wait."""
    words: Iterable[str] = ()
    match name, command:
        case "MODEL", _:
            words = _models(command, settings)
        case "name", "upstream":
            words = [model.name for model in catalog() if model.upstream]
        case ("--kind" | "--kv-type", _) | ("--preset", "plan"):
            kinds = {"--kind": UpstreamKind, "--kv-type": KvType, "--preset": Preset}
            words = get_args(kinds[name])
        case "[NAME]", "config":
            words = Settings.__struct_fields__
        case "--dense", _:
            from convert.tensor_types import DENSE_TYPES

            words = DENSE_TYPES
        case "AGENT", _:
            from gptoss_local.cli.launch.agents import AGENTS

            words = AGENTS
        case "--preset", _:
            from gptoss_local.talk.presets import known_presets

            return [(each, preset.system) for each, preset in known_presets().items()]
        case (("--tools" | "--allow"), "run"):
            from gptoss_local.talk.tools import ToolSources

            groups = ToolSources(settings, Path()).toolbox().groups()
            words = [group.name for group in groups]
        case ("--chat", "chat") | ("[CHAT|import]", "chats"):
            return _chats(settings)
    return [(each, "") for each in words]


def _models(command: str, settings: Settings) -> Iterable[str]:
    match command:
        case "stop":
            return _loaded(settings)
        case "pull":
            return [model.name for model in catalog() if model.repo]
    elsewhere = [model.name for model in catalog() if model.upstream and command != "rm"]
    return [*installed_names(settings.models_dir), *elsewhere]


def _chats(settings: Settings) -> Iterable[tuple[str, str]]:
    from gptoss_local.talk.history import History

    if not settings.history_path.exists():
        return []
    with closing(History(settings.history_path)) as history:
        listed = [] if history.lock.is_locked else history.chats(_N_CHATS)
    return [(str(chat.id), chat.title) for chat in listed]


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
