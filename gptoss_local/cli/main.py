"""Registers the commands and turns our errors into one line, a hint and an exit code."""

import inspect
import os
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from gptoss_local import __version__
from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.cli._output import print_error
from gptoss_local.cli._streams import discard_stdout, is_reader_gone, ready_streams, system_error

GROUPS = {
    "Chat": {
        "run": "Ask MODEL, or else the newest one; without a PROMPT, chat line by line.",
        "chat": "Chat in the terminal; every chat is saved.",
        "web": "Chat in the browser; the chats are those of `gptoss chat`.",
        "chats": "List past chats, search them, or print one.",
        "passphrase": "Encrypt saved chats with a passphrase, or change and remove it.",
        "presets": "List the presets of the chat.",
        "tools": "List what the model may call, or add, remove and test MCP servers.",
        "launch": "Start a coding agent with a model of this machine.",
    },
    "Models": {
        "pull": "Download MODEL and convert it while it arrives.",
        "ls": "List the models on this machine.",
        "show": "Show details of MODEL.",
        "create": "Make a model NAME from another one, with defaults of its own.",
        "adapter": "Make a model NAME of MODEL and a LoRA adapter.",
        "cp": "Give MODEL another name; both share one file on the disk.",
        "rm": "Delete models.",
        "gc": "Remove files that no model needs.",
        "import": "Use a model where it is; nothing is copied or changed.",
        "convert": "Convert a gpt-oss checkpoint to GGUF; the MXFP4 experts stay exact.",
        "verify": "Verify that a gpt-oss GGUF is complete and matches its checkpoint.",
        "upstream": "List models that engines elsewhere compute, or add, test and remove them.",
    },
    "Server": {
        "serve": "Serve the Ollama-compatible API.",
        "status": "Show whether a server runs and what it holds; exit code 7 if none does.",
        "ps": "List the models in memory and those that are loading.",
        "load": "Load MODEL into memory.",
        "stop": "Unload MODEL, or stop the server.",
        "logs": "Show the end of the server's log; `gptoss chats` has the chats.",
        "keys": "List the API keys of other users, or add and remove one.",
    },
    "Machine": {
        "plan": "Show how MODEL would be placed in memory, how fast it may be, and why.",
        "bench": "Measure MODEL: prompts, answers at the same time, and an agent's turns.",
        "eval": "Ask questions with known answers: is the model as good here as elsewhere?",
        "tune": "Measure MODEL on this machine once, for better plans and quicker loads.",
        "doctor": "Check GPU, driver, build, memory, disk and port; exit code 1 for a problem.",
    },
    "More": {
        "config": "Show the settings in effect and where each comes from.",
        "capacity": "Show how many machines a number of users takes, from measured step times.",
        "worker": "Serve MODEL as a worker of NVIDIA Dynamo.",
        "completion": "Print the completion script of a SHELL.",
    },
}
"""In the order of the help; the docstring of each function says more."""
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

_CommandLineError: type[Exception] = typer.BadParameter.__mro__[1]  # a private class of typer
_VALUE = re.compile(r"^Invalid value for '(?=-)|(?<=\w)'(?=:)")  # before an option, and after it
_KIND = re.compile(r"is not a valid (int|float)\w*(?: range)?")
_HIDDEN = ("list", "start")  # the names Ollama's users type
_FUNCTIONS = {"eval": "eval_", "import": "import_", "list": "ls", "start": "serve"}
_MODULES = {
    **dict.fromkeys(("serve", "status", "ps", "load", "stop", "logs"), "server"),
    **dict.fromkeys(("ls", "cp", "rm", "gc", "import_"), "models"),
    **dict.fromkeys(("bench", "tune"), "measure"),
    "presets": "chats",
    "adapter": "create",
    "eval_": "eval",
}


class _Groups(typer.core.TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def make_app(names: Iterable[str] = (*COMMANDS, *_HIDDEN)) -> typer.Typer:
    app = _empty_app()
    for name in names:
        function = _FUNCTIONS.get(name, name)
        module = import_module(f"gptoss_local.cli.{_MODULES.get(function, function)}")
        command = getattr(module, function)
        summary = COMMANDS.get(name) or COMMANDS[function]
        text = f"{summary}\n\n{inspect.getdoc(command) or ''}"
        app.command(name, short_help=summary, help=text, hidden=name in _HIDDEN)(command)
    return app


def make_help_app() -> typer.Typer:
    """Return the command line for `--help`. PERF: it imports no command, 50 ms."""
    app = _empty_app()
    for name in (*COMMANDS, *_HIDDEN):
        app.command(name, short_help=COMMANDS.get(name), hidden=name in _HIDDEN)(lambda: None)
    return app


def _app_with(command: str = "") -> typer.Typer:
    """Return the command line for one command, without importing the others."""
    return make_app([command]) if command in (*COMMANDS, *_HIDDEN) else make_help_app()


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        cls=_Groups,
        help="Run OpenAI's gpt-oss models on your own PC.",
        epilog="gptoss help COMMAND explains a command.",
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    app.command("help", hidden=True)(_help)
    app.command("version", hidden=True)(_version)
    return app


def _make_welcome_app() -> typer.Typer:
    from gptoss_local.cli.chat import welcome

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(welcome)
    return app


def _has_terminal() -> bool:
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _help(command: Annotated[str, typer.Argument(metavar="COMMAND")] = "") -> None:
    """Explain COMMAND, or list all commands."""
    if command:
        _app_with(command)([command, "--help"], prog_name="gptoss")
    make_help_app()(["--help"], prog_name="gptoss")


def _version() -> None:
    """Show the version."""
    from gptoss_local.machine.hardware import llama_version

    print(f"gptoss {__version__} (llama-cpp-python {llama_version()})")


def _print_version(wanted: bool) -> None:
    if wanted:
        _version()
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", callback=_print_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    ready_streams()
    if sys.argv[1:2] in (["run"], ["chat"]):
        command = import_module(f"gptoss_local.cli.{sys.argv[1]}")
        sys.argv[2:] = command.with_values(sys.argv[2:])
    is_welcome = not sys.argv[1:] and _has_terminal()
    app = _make_welcome_app() if is_welcome else _app_with(*sys.argv[1:2])
    try:
        _run(app)
    except (GptOssError, OSError, UnicodeEncodeError) as error:
        if os.environ.get("GPTOSS_DEBUG"):
            raise
        known = _known(error)
        print_error(known)
        sys.exit(known.exit_code)


def _run(app: typer.Typer) -> None:
    """Run it; the reader of a pipe may go away, as `head` does, which is not an error."""
    try:
        try:
            _call(app)
        finally:
            sys.stdout.flush()  # here, where a closed pipe can still be caught
    except (OSError, SystemExit) as error:
        if not (is_reader_gone(error) or is_reader_gone(error.__context__)):
            raise  # typer makes exit code 1 of the latter
        discard_stdout()
        sys.exit(0)


def _call(app: typer.Typer) -> None:
    """Run it; a wrong command line is an error like any other."""
    command = typer.main.get_command(app)
    try:
        is_help = not sys.argv[1:] and not _has_terminal()
        words = ["--help"] if is_help else None  # None: Windows' shells expand no patterns
        code = command.main(words, "gptoss", standalone_mode=False)
    except _CommandLineError as error:
        wrong: Any = error
        message = wrong.format_message().rstrip(".").split("\n\n")[0]
        message = _VALUE.sub("", _KIND.sub(_in_words, message))
        path = wrong.ctx.command_path if wrong.ctx else "gptoss"
        hint = f"See {path} --help"
        raise UsageError(message[:1].lower() + message[1:], hint=hint) from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if is_help:
        sys.exit(UsageError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _in_words(kind: re.Match[str]) -> str:
    return f"is not a {'whole ' * (kind[1] == 'int')}number"


def _known(error: GptOssError | OSError | UnicodeEncodeError) -> GptOssError:
    if isinstance(error, GptOssError):
        return error
    if isinstance(error, OSError):
        discard_stdout()  # as its disk may be full
        return system_error(error)
    return UsageError("an argument or a line of the input is not text")
