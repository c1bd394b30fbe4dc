"""`gptoss chats` and `gptoss presets`. They read the disk and need no server."""

import re
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import load_settings
from gptoss_local.cli._options import Json
from gptoss_local.cli._output import human_age, print_json, print_list, print_table, say, shortened
from gptoss_local.cli.passphrase import open_history
from gptoss_local.talk.history import (
    MATCH_END,
    MATCH_START,
    ChatSummary,
    History,
    Hit,
    read_export,
)
from gptoss_local.talk.presets import known_presets, options_text, presets_path

Chat = Annotated[
    str | None,
    typer.Argument(
        metavar="[CHAT|import]", help="Number of the chat to print, as Markdown; or add a FILE's."
    ),
]
File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="An exported chat; ChatGPT's or Open WebUI's export."),
]
Words = Annotated[
    str | None,
    typer.Option("-q", "--query", metavar="WORDS", help="Search titles and all turns."),
]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Lines at most.")]


def chats(
    chat: Chat = None,
    file: File = None,
    query: Words = None,
    limit: Limit = 20,
    json: Json = False,
) -> None:
    if chat == "import":
        if file is None:
            raise UsageError("which file? gptoss chats import FILE")
    elif chat is not None and not (chat.isascii() and chat.isdecimal()):
        raise UsageError(f"{chat!r} is not the number of a chat", hint="`gptoss chats` lists them.")
    elif file is not None:
        raise UsageError("a chat is printed, not written to a file", hint=f"gptoss chats {chat}")
    if chat is not None and query is not None:
        raise UsageError("A search goes over all chats.", hint="Give CHAT or -q, not both.")
    history = open_history(load_settings())
    try:
        if file is not None:
            _import(history, file, json)
        elif chat is not None:
            chat_id = int(chat)
            text = history.export_json(chat_id) if json else history.export_markdown(chat_id)
            print(text, end="")
        elif query is not None:
            _print_hits(history.search(query, limit), json)
        else:
            _print_chats(history.chats(limit), json)
    finally:
        history.close()


def _import(history: History, path: Path, json: bool) -> None:
    found = read_export(path)
    ids = [history.add_tree(*each).id for each in found.chats]
    if json:
        print_json(chat_id=ids[0], chat_ids=ids, notes=found.notes)
        return
    one = f"Imported as chat {ids[0]}: gptoss chat --chat {ids[0]}"
    print(one if len(ids) == 1 else f"Imported {len(ids):,} chats: gptoss chats")
    for note in found.notes:
        say(note)


def _print_chats(chats: list[ChatSummary], json: bool) -> None:
    rows = [
        (
            str(chat.id),
            shortened(chat.title),
            chat.model,
            str(chat.n_turns),
            f"{human_age(time.time() - chat.updated_s)} ago",
        )
        for chat in chats
    ]
    print_list(("CHAT", "TITLE", "MODEL", "TURNS", "UPDATED"), rows, as_json=json, chats=chats)


def _print_hits(hits: list[Hit], json: bool) -> None:
    found = [msgspec.structs.replace(hit, snippet="".join(_pieces(hit))) for hit in hits]
    rows = [(str(hit.chat_id), shortened(hit.title), _pieces(hit)) for hit in hits]
    print_list(("CHAT", "TITLE", "FOUND"), rows, as_json=json, hits=found)


def _pieces(hit: Hit) -> tuple[str, ...]:
    """Split a snippet; every second piece matches the query."""
    return tuple(re.split(f"[{MATCH_START}{MATCH_END}]", hit.snippet))


def presets(json: Json = False) -> None:
    found = known_presets()
    if json:
        listed = [
            {"name": name, **msgspec.structs.asdict(preset)} for name, preset in found.items()
        ]
        print_json(file=presets_path(), presets=listed)
        return
    rows = [
        (name, preset.effort or "-", options_text(preset.options) or "-", shortened(preset.system))
        for name, preset in found.items()
    ]
    print_table(("NAME", "EFFORT", "OPTIONS", "SYSTEM"), rows)
    say(f"Yours are in {presets_path()}: gptoss chat --preset NAME, or gptoss run --preset NAME")
