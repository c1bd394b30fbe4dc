"""Registers the commands and turns our errors into one line, a hint and an exit code."""

import os
import sys
from typing import Annotated

import typer

from gptoss_local import __version__
from gptoss_local.cli._output import print_error
from gptoss_local.cli.bench import bench
from gptoss_local.cli.chat import chat
from gptoss_local.cli.completion import completion
from gptoss_local.cli.config import config
from gptoss_local.cli.convert import convert
from gptoss_local.cli.cp import cp
from gptoss_local.cli.create import create
from gptoss_local.cli.doctor import doctor
from gptoss_local.cli.gc import gc
from gptoss_local.cli.import_ import import_
from gptoss_local.cli.load import load
from gptoss_local.cli.log import log
from gptoss_local.cli.logs import logs
from gptoss_local.cli.ls import ls
from gptoss_local.cli.plan import plan
from gptoss_local.cli.ps import ps
from gptoss_local.cli.pull import pull
from gptoss_local.cli.rm import rm
from gptoss_local.cli.run import run
from gptoss_local.cli.serve import serve
from gptoss_local.cli.show import show
from gptoss_local.cli.status import status
from gptoss_local.cli.stop import stop
from gptoss_local.cli.tune import tune
from gptoss_local.cli.verify import verify
from gptoss_local.errors import GptOssError

app = typer.Typer(
    help="Run OpenAI's gpt-oss models on your own PC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    *(run, chat, log, pull, ls, ps, show, load, stop),
    *(create, cp, rm, gc, convert, verify),
    *(serve, status, logs, config, plan, bench, tune, doctor, completion),
):
    app.command()(command)
app.command("import")(import_)
app.command("list", hidden=True)(ls)  # the names Ollama's users type
app.command("start", hidden=True)(serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"gptoss {__version__} (llama-cpp-python {version('llama-cpp-python')})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command of this process, and end it with its exit code."""
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
