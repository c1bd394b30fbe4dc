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
from gptoss_local.talk.history import MATCH_END, MATCH_START, ChatSummary, Hit, read_export
from gptoss_local.talk.presets import known_presets, options_text, presets_path

Chat = Annotated[
    int | None, typer.Argument(metavar="CHAT", help="Number of the chat to print, as Markdown.")
]
Words = Annotated[
    str | None,
    typer.Option("-q", "--query", metavar="WORDS", help="Search titles and all turns."),
]
Import = Annotated[
    Path | None,
    typer.Option("--import", metavar="FILE", help="Add a chat that was exported as JSON."),
]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Lines at most.")]


def chats(
    chat: Chat = None,
    query: Words = None,
    limit: Limit = 20,
    import_: Import = None,
    json: Json = False,
) -> None:
    if chat is not None and query is not None:
        raise UsageError("A search goes over all chats.", hint="Give CHAT or -q, not both.")
    if import_ is not None and (chat is not None or query is not None):
        raise UsageError("--import adds a chat and prints none", hint="Give --import alone.")
    history = open_history(load_settings())
    try:
        if import_ is not None:
            chat_id = history.import_json(read_export(import_))
            text = f"Imported as chat {chat_id}: gptoss chat --chat {chat_id}"
            print_json(chat_id=chat_id) if json else print(text)
        elif chat is not None:
            text = history.export_json(chat) if json else history.export_markdown(chat)
            print(text, end="")
        elif query is not None:
            _print_hits(history.search(query, limit), json)
        else:
            _print_chats(history.chats(limit), json)
    finally:
        history.close()


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
