"""`gptoss chat`: the terminal chat, with a model and a server; `gptoss` alone is `welcome`."""

import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings, load_settings
from gptoss_local.base.types import Effort
from gptoss_local.cli._first_model import ask_for_model, chosen_model
from gptoss_local.cli._options import (
    PATHS,
    model_and_words,
    named,
    running_server,
    server_for,
    with_missing_values,
)
from gptoss_local.cli._output import INTERRUPTED, is_linear, print_facts, say
from gptoss_local.cli.passphrase import open_history
from gptoss_local.cli.web import show_page
from gptoss_local.talk.presets import find_preset

if TYPE_CHECKING:
    from gptoss_local.talk.history import ChatSummary, History
    from gptoss_local.talk.tools.work import Work
    from tui.conversation import Conversation


def chat(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Name, or path of a GGUF file.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="The first message.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last chat.")] = False,
    chat_id: Annotated[int | None, typer.Option("--chat", help="Continue this chat.")] = None,
    effort: Annotated[Effort | None, typer.Option("--effort", help="How long to think.")] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="Begin with this preset.")
    ] = None,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="Begin a chat of which nothing is kept on disk.")
    ] = False,
    work: Annotated[
        str | None,
        typer.Option(
            "--work",
            metavar="[FOLDER]",
            help="Let the model read and change files there, and run commands; you are asked.",
        ),
    ] = None,
    in_browser: Annotated[
        bool, typer.Option("--web", help="Open the chats in the browser, as `gptoss web` does.")
    ] = False,
) -> None:
    """Without MODEL it uses the model of the last chat, or the newest one. A MODEL that can only be
    a text is taken as the PROMPT.

    A terminal that cannot be drawn on (TERM=dumb), and a screen reader (ACCESSIBLE=1), get the
    line-by-line chat of `run`.
    """
    if in_browser:
        given = (model, chat_id, effort, preset, resume or None, temporary or None, work)
        if any(each is not None for each in given):
            raise UsageError("--web takes no other option", hint="Choose them in the browser.")
        show_page(load_settings(), opens=True)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("chat needs a terminal", hint="In a pipe: gptoss run MODEL PROMPT")
    if preset is not None and (resume or chat_id is not None):
        raise UsageError("a preset begins a new chat", hint="Leave out --resume and --chat.")
    if temporary and (resume or chat_id is not None):
        raise UsageError("a temporary chat is a new one", hint="Leave out --resume and --chat.")
    model, words = model_and_words(model, prompt)
    chosen = find_preset(preset) if preset is not None else None
    gc.disable()  # PERF: imports make no garbage; 0.6 instead of 0.8 s of CPU to the first prompt
    from tui.conversation import Conversation

    settings = load_settings()
    works_in = None if work is None else _work(work, settings)
    history = open_history(settings)
    try:
        last = next(iter(history.chats(limit=1)), None)
        opened = history.chat(chat_id) if chat_id is not None else last if resume else None
        if resume and opened is None:
            raise UsageError("there is no chat to continue", hint="Begin one: gptoss chat")
        name = _ready_model(model, opened or last, settings)
        conversation = Conversation(history, name, "medium")
        if opened is not None:
            conversation.open(opened.id)
        conversation.is_temporary = temporary
        if chosen is not None:
            conversation.begin_with(*chosen)
        conversation.set_model(name, effort or conversation.effort)
        text = " ".join(words)
        if is_linear():
            _talk(settings, conversation, text)
        else:
            conversation = _show(settings, history, conversation, text, works_in)
    finally:
        history.close()
    if conversation.chat_id is not None and not conversation.is_temporary:
        print(f"Saved. Continue with: gptoss chat --chat {conversation.chat_id}")


def _work(folder: str, settings: Settings) -> "Work":
    if is_linear():
        raise UsageError("--work needs a terminal that can be drawn on")
    from gptoss_local.talk.tools.work import Work

    return Work(Path(folder or ".").expanduser(), settings)


def _ready_model(model: str | None, last: "ChatSummary | None", settings: Settings) -> str:
    from gptoss_local.models.store import find_model, list_models

    installed = [entry.name for entry in list_models(settings)]
    if model is not None:
        name = named(model, settings)
    elif last is not None and last.model in installed:
        name = last.model
    else:
        name = chosen_model(settings)
    server_for(name, settings)
    return find_model(name, settings).name


def _talk(settings: Settings, conversation: "Conversation", prompt: str) -> None:
    from gptoss_local.cli._answer import Chat
    from gptoss_local.cli._printer import Printer
    from gptoss_local.cli._repl import Repl, saved_chat

    say("This terminal cannot be drawn on: chatting line by line.")
    is_temporary = conversation.is_temporary
    client, model = running_server(settings), conversation.model
    printer = Printer(hide_reasoning=False, stats=False, draws=True)
    wishes: dict[str, Any] = {"think": conversation.effort, "system": conversation.instructions}
    wishes["options"] = conversation.request()["options"]
    if is_temporary:
        chat = Chat(client, model, printer, is_temporary=True, **wishes)
    else:
        chat = saved_chat(conversation, client, printer, model=model, **wishes)
    # After a space it is a message, whatever it begins with: no command, and none of the shell's.
    Repl(chat, settings, is_temporary=is_temporary).talk(f" {prompt}".rstrip())


def _show(
    settings: Settings,
    history: "History",
    conversation: "Conversation",
    prompt: str,
    work: "Work | None",
) -> "Conversation":
    import asyncio

    from gptoss_local.api.client import AsyncClient
    from gptoss_local.talk.tools import ToolSources
    from tui.app import ChatApp
    from tui.server import ChatServer

    server = ChatServer(AsyncClient(settings), partial(running_server, settings))
    sources = ToolSources(settings, work.folder if work else Path.cwd())
    make, theme, keys = partial(sources.toolbox, work), settings.theme, settings.keys
    app = ChatApp(server, history, conversation, make, theme=theme, keys=keys)
    app.alerts, app.chat.first_message = settings.alerts, prompt
    if work:  # so that `!`, `@` and /export are there, too
        os.chdir(work.folder)

    async def run() -> None:
        try:
            await app.run_async()
        finally:  # processes of tools end with the chat
            await app.close()
            await sources.close()

    asyncio.run(run())
    for room in app.chat.rooms:
        room.conversation.store()  # raises if the last answer on the screen could not be saved
    return app.chat.conversation


def with_values(arguments: Sequence[str]) -> list[str]:
    """Give a bare `--work` its value; a word after it is one if it names a folder."""

    def is_folder(word: str) -> bool:
        return os.path.isdir(word) or word.startswith(PATHS)

    return with_missing_values(arguments, {"--work": (is_folder, "")})


def welcome() -> None:
    from gptoss_local.runner.fits import has_model

    settings = load_settings()
    if has_model(settings):
        say("Starting the chat with your last model. `gptoss --help` lists the commands.")
        chat()
        return
    try:
        name = _first_model(settings)
    except KeyboardInterrupt:
        say("\nGoodbye. `gptoss` continues here; `gptoss --help` lists the commands.")
        raise typer.Exit(INTERRUPTED) from None
    say(f"Starting the chat with {name}. In it, F1 shows the keys, and /quit leaves.")
    chat(name)


def _first_model(settings: Settings) -> str:
    from gptoss_local.machine.hardware import read_machine
    from gptoss_local.runner.fits import machine_facts

    print("Welcome to gptoss, which runs OpenAI's gpt-oss models on this machine.\n")
    machine = read_machine(settings.models_dir)
    print_facts(machine_facts(machine, settings))
    print()
    return ask_for_model(settings, machine)
