"""`gptoss completion`: a script that teaches a shell our commands, options and model names.

Commands and options are written into the script from what typer knows of them; names of models are
asked for at every Tab, from `_names`.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from gptoss_local.cli import _shell_scripts
from gptoss_local.cli._names import NameKind
from gptoss_local.cli._shell_scripts import Command, Option


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


_MANY = 99
_KINDS: dict[str, NameKind] = {"stop": "loaded", "pull": "known"}  # all others: installed


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a SHELL.

    bash, zsh: source <(gptoss completion bash); fish: gptoss completion fish | source;
    PowerShell: gptoss completion powershell | Out-String | Invoke-Expression. In a start-up file
    this works in every new terminal.
    """
    print(script_for(shell), end="")


def script_for(shell: Shell) -> str:
    """Return the completion script of a shell."""
    from gptoss_local.cli.main import make_app

    make = {
        Shell.bash: _shell_scripts.bash,
        Shell.zsh: _shell_scripts.zsh,
        Shell.fish: _shell_scripts.fish,
        Shell.powershell: _shell_scripts.powershell,
    }
    return make[shell](read_commands(make_app()))


def read_commands(app: typer.Typer) -> list[Command]:
    """All commands that `--help` lists, from the signatures of their functions."""
    return [
        _read(registered.name or registered.callback.__name__, registered.callback)
        for registered in app.registered_commands
        if registered.callback is not None and not registered.hidden
    ]


def _read(name: str, function: Callable[..., Any]) -> Command:
    options = []
    n_models = 0
    values: list[str] = []
    for parameter, hint in get_type_hints(function, include_extras=True).items():
        if parameter == "return":
            continue
        kind, info = get_args(hint)[:2]
        if isinstance(info, OptionInfo):
            options.append(_option(parameter, kind, info))
        elif (info.metavar or "").startswith("MODEL"):
            n_models = _MANY if get_origin(kind) is list else 1
        else:
            values += _choices(kind)
    help_option = Option(("--help",), "Show the help.", False, (), None)
    summary = " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    models = _KINDS.get(name, "installed")
    return Command(name, summary, (*options, help_option), tuple(values), models, n_models)


def _option(parameter: str, kind: Any, info: OptionInfo) -> Option:
    # In Annotated[…, Option("--from")] typer keeps the first spelling where a default would be.
    spelled = (info.default, *(info.param_decls or ()))
    flags = tuple(flag for flag in spelled if isinstance(flag, str) and flag.startswith("-"))
    return Option(
        flags=flags or (f"--{parameter.replace('_', '-')}",),
        help=info.help or "",
        takes_value=kind is not bool,
        values=_choices(kind),
        names="installed" if (info.metavar or "").startswith("MODEL") else None,
    )


def _choices(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is not Literal:
        kind = next(iter(get_args(kind)), kind)  # `AgentName | None`, of what may be left out
    if get_origin(kind) is Literal:
        return get_args(kind)
    is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
    return tuple(kind) if is_choice else ()
