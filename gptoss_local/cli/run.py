"""`gptoss run`: ask a model, once or line by line."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from gptoss_local.cli._answer import Chat, JsonPrinter, Printer
from gptoss_local.cli._first_model import chosen_model
from gptoss_local.cli._loading import show_load
from gptoss_local.cli._options import INTERRUPTED, Json, named, server_for
from gptoss_local.cli._streams import read_stdin
from gptoss_local.settings import load_settings


class Effort(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"


def run(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="What to ask.")
    ] = None,
    effort: Annotated[Effort, typer.Option("--effort", "--think", help="How long to think.")] = (
        Effort.medium
    ),
    system: Annotated[str, typer.Option(help="System message, instead of the model's own.")] = "",
    hide_reasoning: Annotated[
        bool, typer.Option("--hide-reasoning", help="Do not print the reasoning.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", "--verbose", help="Say how fast the answer was.")
    ] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Chat line by line, also in a pipe.")
    ] = False,
    json: Json = False,
) -> None:
    """Ask MODEL, or else the newest one; without a PROMPT, chat line by line.

    Text from a pipe goes before PROMPT. The reasoning goes to stderr, the answer to stdout. With
    --json: an event per line, the last one with "event": "done".
    """
    text = " ".join(prompt or ())
    if not interactive and not sys.stdin.isatty():
        text = "\n\n".join(part for part in (read_stdin().strip(), text) if part)
        if not text:
            raise typer.BadParameter("no prompt given and nothing on stdin")
    settings = load_settings()
    model = named(model, settings) if model else chosen_model(settings)
    client = server_for(model, settings)
    show_load(client, model)
    printer = (JsonPrinter if json else Printer)(hide_reasoning=hide_reasoning, stats=stats)
    chat = Chat(client, model, printer)
    chat.effort, chat.system = effort.value, system
    if text and not chat.ask(text):
        raise typer.Exit(INTERRUPTED)
    if interactive or not text:
        from gptoss_local.cli._repl import Repl

        Repl(chat, settings).talk()
