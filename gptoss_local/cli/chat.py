"""`gptoss chat`: the terminal chat. Makes sure of a model and a server, then shows the app."""

import gc
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptoss_local.cli._first_model import chosen_model
from gptoss_local.cli._options import named, running_server, server_for
from gptoss_local.errors import UsageError
from gptoss_local.settings import Settings, load_settings
from gptoss_local.types import Effort

if TYPE_CHECKING:
    from tui.history import ChatSummary, History


def chat(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last chat.")] = False,
    chat_id: Annotated[int | None, typer.Option("--chat", help="Go on with this chat.")] = None,
    effort: Annotated[Effort | None, typer.Option("--effort", help="How long to think.")] = None,
) -> None:
    """Chat in the terminal; every chat is saved.

    Without MODEL it goes on with the model of the last chat, or takes the newest one.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("chat needs a terminal", hint="In a pipe: gptoss run MODEL PROMPT")
    gc.disable()  # PERF: imports make no garbage; 0.6 instead of 0.8 s of CPU to the first prompt
    from tui.history import History

    settings = load_settings()
    history = History(settings.history_path)
    try:
        last = next(iter(history.chats(limit=1)), None)
        opened = history.chat(chat_id) if chat_id is not None else last if resume else None
        if resume and opened is None:
            raise UsageError("there is no chat to go on with", hint="Begin one: gptoss chat")
        name = _ready_model(model, opened or last, settings)
        left_id = _show(settings, history, name, effort, opened.id if opened else None)
    finally:
        history.close()
    if left_id is not None:
        print(f"Saved. Go on with: gptoss chat --chat {left_id}")


def _ready_model(model: str | None, last: "ChatSummary | None", settings: Settings) -> str:
    """Find the model to use, make sure of its file and of a server; returns its name."""
    from gptoss_local.store import find_model, list_models

    installed = [entry.name for entry in list_models(settings)]
    if model is not None:
        name = named(model, settings)
    elif last is not None and last.model in installed:
        name = last.model
    else:
        name = chosen_model(settings)
    server_for(name, settings)
    return find_model(name, settings).name


def _show(
    settings: Settings,
    history: "History",
    model: str,
    effort: Effort | None,
    chat_id: int | None,
) -> int | None:
    """Run the app until it is left; returns the chat that was open then."""
    from gptoss_local.client import AsyncClient
    from tui.app import ChatApp
    from tui.conversation import Conversation
    from tui.server import ChatServer
    from tui.tools import Toolbox

    conversation = Conversation(history, model, "medium")
    if chat_id is not None:
        conversation.open(chat_id)
    conversation.set_model(model, effort or conversation.effort)
    server = ChatServer(AsyncClient(settings), partial(running_server, settings))
    toolbox = Toolbox(settings.tools, Path.cwd())
    app = ChatApp(server, history, conversation, toolbox, theme=settings.theme, keys=settings.keys)
    app.run()
    conversation.store()  # raises what cannot be: the last answer is not what was on the screen
    return conversation.chat_id
