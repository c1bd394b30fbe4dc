"""Registers the commands and turns our errors into one line, a hint and an exit code."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from gptoss_local import __version__
from gptoss_local.cli._output import print_error
from gptoss_local.errors import GptOssError

COMMANDS = (
    *("run", "chat", "log", "pull", "ls", "ps", "show", "load", "stop"),
    *("create", "cp", "rm", "gc", "import", "convert", "verify"),
    *("serve", "status", "logs", "config", "plan", "bench", "tune", "doctor", "completion"),
)
"""In the order of the help; each is a function in a module of its own."""

_HIDDEN = ("list", "start")  # the names Ollama's users type
_FUNCTIONS = {"import": "import_", "list": "ls", "start": "serve"}


def make_app(names: Iterable[str] = (*COMMANDS, *_HIDDEN)) -> typer.Typer:
    """The command line, with these commands alone."""
    app = typer.Typer(
        help="Run OpenAI's gpt-oss models on your own PC.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in names:
        function = _FUNCTIONS.get(name, name)
        module = import_module(f"gptoss_local.cli.{function}")
        app.command(name, hidden=name in _HIDDEN)(getattr(module, function))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"gptoss {__version__} (llama-cpp-python {version('llama-cpp-python')})")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command of this process, and end it with its exit code."""
    wanted = [name for name in sys.argv[1:2] if name in (*COMMANDS, *_HIDDEN)]
    app = make_app(wanted) if wanted else make_app()  # PERF: the others take 60 ms
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a closed pipe can still be caught
    except GptOssError as error:
        if os.environ.get("GPTOSS_DEBUG"):
            raise
        print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of a pipe went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
