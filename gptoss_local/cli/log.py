"""`gptoss log`: the chats of `gptoss chat`. Reads the disk, needs no server."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gptoss_local.cli._options import Json
from gptoss_local.cli._output import human_age, is_plain, print_json, print_table
from gptoss_local.errors import UsageError
from gptoss_local.settings import load_settings

if TYPE_CHECKING:
    from tui.history import ChatSummary, Hit

_TITLE_CELLS = 48

Chat = Annotated[
    int | None, typer.Argument(metavar="CHAT", help="Number of the chat to print, as Markdown.")
]
Words = Annotated[
    str | None,
    typer.Option("-q", "--query", metavar="WORDS", help="Search titles and all turns."),
]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Lines at most.")]


def log(chat: Chat = None, query: Words = None, limit: Limit = 20, json: Json = False) -> None:
    """List past chats, search them, or print one."""
    from tui.history import History

    if chat is not None and query is not None:
        raise UsageError("A search goes over all chats.", hint="Give CHAT or -q, not both.")
    history = History(load_settings().history_path)
    try:
        if chat is not None:
            text = history.export_json(chat) if json else history.export_markdown(chat)
            print(text, end="")
        elif query is not None:
            _print_hits(history.search(query, limit), json)
        else:
            _print_chats(history.chats(limit), json)
    finally:
        history.close()


def _print_chats(chats: "list[ChatSummary]", json: bool) -> None:
    if json:
        print_json(chats=chats)
        return
    rows = [
        (
            str(chat.id),
            _short(chat.title),
            chat.model,
            str(chat.n_turns),
            f"{human_age(time.time() - chat.updated_s)} ago",
        )
        for chat in chats
    ]
    print_table(("CHAT", "TITLE", "MODEL", "TURNS", "UPDATED"), rows)


def _print_hits(hits: "list[Hit]", json: bool) -> None:
    if json:
        print_json(hits=[_plain_hit(hit) for hit in hits])
        return
    is_styled = sys.stdout.isatty() and not is_plain()
    bold, plain = ("\x1b[1m", "\x1b[0m") if is_styled else ("", "")
    rows = [(str(hit.chat_id), _short(hit.title), _marked(hit, bold, plain)) for hit in hits]
    print_table(("CHAT", "TITLE", "FOUND"), rows)


def _plain_hit(hit: "Hit") -> dict[str, Any]:
    return msgspec.structs.asdict(hit) | {"snippet": _marked(hit, "", "")}


def _marked(hit: "Hit", start: str, end: str) -> str:
    from tui.history import MATCH_END, MATCH_START

    return hit.snippet.replace(MATCH_START, start).replace(MATCH_END, end)


def _short(title: str) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(title) <= _TITLE_CELLS:
        return title
    return f"{set_cell_size(title, _TITLE_CELLS - 1).rstrip()}…"
