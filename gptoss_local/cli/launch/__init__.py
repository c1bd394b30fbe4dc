"""`gptoss launch`: start a coding agent with this server as its model."""

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from gptoss_local.base.errors import DoesNotFitError, UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.settings_file import (
    Change,
    SettingsFile,
    make_change,
    make_undo,
    read_change,
    read_undo,
)
from gptoss_local.base.whole_file import write_whole
from gptoss_local.cli._first_model import chosen_model
from gptoss_local.cli._loading import continues, follow_load, loaded_model
from gptoss_local.cli._options import Json, named, server_for
from gptoss_local.cli._output import print_json, print_table, progress_bar, say
from gptoss_local.cli._question import has_terminal
from gptoss_local.cli.launch.agents import AGENTS, KEY_VARIABLE, Agent, ServedModel, Setup
from gptoss_local.models.store import find_model

if TYPE_CHECKING:
    from gptoss_local.api.client import Client


def launch(
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Which program.")] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENTS]", help="What the program gets, after --."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Else the newest one.")
    ] = None,
    config_only: Annotated[
        bool,
        typer.Option("--config-only", help="Write or print its settings, and start nothing."),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put its settings file back, and start nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Change its settings file without asking.")
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the programs.")] = False,
    json: Json = False,
) -> None:
    """Without AGENT, list the programs. Settings go by environment and arguments where the program
    allows it. A settings file is changed only after you have seen how, and a backup is kept.
    """
    if agent is None or list_all:
        _list(json=json)
        return
    if json and not config_only:
        raise UsageError(
            "--json prints settings or the list of programs, and starts nothing",
            hint="Add --config-only or --list.",
        )
    if agent not in AGENTS:
        raise UsageError(f"'{agent}' is not one of {str([*AGENTS])[1:-1]}")
    if undo:
        _undo(AGENTS[agent], yes=yes)
        return
    row, settings = AGENTS[agent], load_settings()
    program = _found(row, settings, is_needed=not config_only)
    name = named(model, settings) if model else chosen_model(settings)
    client = None if config_only else server_for(name, settings)
    name = find_model(name, settings).name
    if client is None:
        key = settings.api_key and _KEY_PLACE
        n_ctx = settings.context_length or row.n_ctx or 32_768
    else:
        key, n_ctx = settings.api_key, _load(client, row, name, settings.context_length)
    setup = _with_data(row, program, ServedModel(settings.url, name, n_ctx, key), settings)
    _change_file(setup.file, yes=yes)
    if client is None:
        _print_settings(row, setup, arguments or [], settings, json=json)
    else:
        assert program is not None
        _start(program, setup, arguments or [], settings)


_PROBE_S = 20
_KEY_PLACE = f"${KEY_VARIABLE}"  # printed instead of the key


def _list(*, json: bool) -> None:
    found = {name: agent.find() for name, agent in AGENTS.items()}
    if json:
        programs = [
            {
                "name": name,
                "title": agent.title,
                "path": found[name],
                "install": agent.install,
                "context_length": agent.n_ctx or None,
                "is_tried": agent.is_tried,
            }
            for name, agent in AGENTS.items()
        ]
        print_json(agents=programs)
        return
    rows = [
        (
            name,
            agent.title if agent.is_tried else f"{agent.title} (not tried)",
            str(found[name]) if found[name] else f"not installed: {agent.install}",
        )
        for name, agent in sorted(AGENTS.items(), key=lambda row: found[row[0]] is None)
    ]
    print_table(("NAME", "PROGRAM", "WHERE"), rows)


def _found(agent: Agent, settings: Settings, *, is_needed: bool) -> Path | None:
    if settings.api_key and not agent.sends_key:
        raise UsageError(
            f"{agent.title} sends no API key this way, and the server asks for one",
            hint=f"Enter the address {settings.url}/v1 and the key in its own settings.",
        )
    program = agent.find()
    if program is None and is_needed:
        raise UsageError(
            f"{agent.title} is not installed: there is no `{agent.program}` on this machine",
            hint=f"Install it: {agent.install}",
        )
    return program


def _load(client: "Client", agent: Agent, model: str, n_set: int) -> int:
    """Load a model with as many tokens as set, or as wanted and fit; return how many it has."""
    n_ctx = n_wanted = n_set or agent.n_ctx
    with progress_bar(quiet=not sys.stderr.isatty(), if_interrupted=continues(model)) as bar:
        for wish in [n_wanted, n_wanted * 3 // 4, n_wanted // 2] if n_wanted else []:
            with contextlib.suppress(DoesNotFitError):
                follow_load(client, {"model": model, "options": {"num_ctx": wish}}, bar)
                break
        else:
            follow_load(client, {"model": model}, bar)
    if (loaded := loaded_model(client, model)) is not None:
        n_ctx = loaded.context_length
    if n_ctx < agent.n_ctx:
        why = "more does not fit" if n_ctx < n_wanted else "as your settings say"
        say(
            f"gptoss: {agent.title} works best with {agent.n_ctx:,} tokens of context; {model} has "
            f"{n_ctx:,} here, {why}"
        )
    return n_ctx


def _with_data(
    agent: Agent, program: Path | None, server: ServedModel, settings: Settings
) -> Setup:
    setup = agent.setup(server)
    if program is None or not setup.data:
        return setup
    path = settings.cache_dir / f"{agent.program}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(setup.data).decode())
    with_data = agent.setup(server, path)
    command = [str(program), *with_data.arguments, *agent.probe]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        tried = subprocess.run(
            command,
            env=_environment(program, setup, settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
        )
        if tried.returncode == 0:
            return with_data
    return setup


def _change_file(file: SettingsFile | None, *, yes: bool) -> None:
    if file is None:
        return
    change = read_change(file)
    if not change.is_needed:
        return
    _confirm(change, yes=yes)
    backup = make_change(change)
    kept = f"; backup: {backup}" if change.before is not None else ""
    say(f"gptoss: wrote {file.path}{kept}")


def _undo(agent: Agent, *, yes: bool) -> None:
    file = agent.setup(ServedModel("", "", 0)).file
    if file is None:
        raise UsageError(f"{agent.title} has no settings here: it gets them as it starts")
    change = read_undo(file.path)
    _confirm(change, yes=yes)
    make_undo(change)
    say(f"gptoss: {file.path} is as it was")


def _confirm(change: Change, *, yes: bool) -> None:
    say(change.diff())
    if yes:
        return
    if not has_terminal():
        raise UsageError(
            f"{change.path} must be changed as shown, and there is no terminal to ask on",
            hint="With --yes it is changed without a question; a backup is kept next to it.",
        )
    if not typer.confirm(f"\nChange {change.path} like this?", default=True, err=True):
        say("gptoss: nothing was changed")
        raise typer.Exit(1)


def _print_settings(
    agent: Agent, setup: Setup, arguments: list[str], settings: Settings, *, json: bool
) -> None:
    """Print the start of the program as a shell's commands; the key only by its name."""
    environment = {k: v for k, v in setup.environment.items() if k != KEY_VARIABLE}
    command = [agent.program, *_arguments(setup, arguments)]
    if json:
        path = setup.file.path if setup.file else None
        print_json(environment=environment, command=command, file=path)
        return
    if settings.api_key and not os.environ.get(KEY_VARIABLE):
        say(f"gptoss: set {KEY_VARIABLE} to the server's API key first")
    for name, value in environment.items():
        if _is_windows():
            quoted = "'" + value.replace("'", "''") + "'"
            print(f"$env:{name} = {f'$env:{KEY_VARIABLE}' if value == _KEY_PLACE else quoted}")
        else:
            quoted = f'"{value}"' if value == _KEY_PLACE else shlex.quote(value)
            print(f"export {name}={quoted}")
    print(subprocess.list2cmdline(command) if _is_windows() else shlex.join(command))


def _arguments(setup: Setup, arguments: list[str]) -> list[str]:
    return [*setup.arguments, *(arguments or setup.alone)]


def _start(program: Path, setup: Setup, arguments: list[str], settings: Settings) -> None:
    """Become the program, so that its exit code and Ctrl-C are its own."""
    environment = _environment(program, setup, settings)
    command = [str(program), *_arguments(setup, arguments)]
    sys.stdout.flush()
    if not _is_windows():
        os.execve(program, command, environment)
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            raise typer.Exit(process.wait())
        except KeyboardInterrupt:  # the program got it as well, and decides
            continue


def _environment(program: Path, setup: Setup, settings: Settings) -> dict[str, str]:
    """Return the user's variables and the program's; no proxy gets requests for this server."""
    environment: dict[str, str] = {**os.environ, **setup.environment}
    if settings.api_key:
        environment[KEY_VARIABLE] = settings.api_key
    folder = str(program.parent)  # its interpreter may be there, too
    if folder not in (path := environment.get("PATH", "")).split(os.pathsep):
        environment["PATH"] = f"{path}{os.pathsep}{folder}"
    if any(name.lower().endswith("_proxy") for name in environment):
        present = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
        hosts = f"{present},{urlsplit(settings.url).hostname}".lstrip(",")
        environment |= dict.fromkeys(("NO_PROXY", "no_proxy"), present if present == "*" else hosts)
    return environment


def _is_windows() -> bool:
    return sys.platform == "win32"
