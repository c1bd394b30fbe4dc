"""Chats and turns, detached from the file, and their rows. Callers hold the transaction."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from gptoss_local.talk.history.lock import opened, sealed
from gptoss_local.talk.history.plain import one_line, storable

Role = Literal["system", "user", "assistant", "tool"]

Moment = Annotated[float, msgspec.Meta(ge=0, lt=253_402_214_400)]  # until the year 9999
"""Seconds since 1970."""

TurnState = Literal["streaming", "done", "stopped", "failed"]
"""`stopped`: by the user, or because the process that wrote it died."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message in the tree of a chat.

    Attributes:
        parent_id: The turn that it follows; None for the first of a chat. Turns of one parent
            are versions of each other: an edited question, a regenerated answer.
        tool_calls: As `message.tool_calls` of Ollama's API.
        tool_name: Of a `tool` turn: the tool that was called.
        stats: Counts and times of the answer's last frame, by their names there.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_name: str = ""
    model: str = ""
    effort: str = ""
    state: TurnState = "done"
    stats: dict[str, Any] = {}
    created_s: Moment


class TurnFields(TypedDict, total=False):
    reasoning: str
    tool_calls: tuple[dict[str, Any], ...]
    tool_name: str
    model: str
    effort: str
    state: TurnState
    stats: dict[str, Any]


class TurnChanges(TurnFields, total=False):
    content: str


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its turns.

    Attributes:
        updated_s: When a turn was last added.
        leaf_id: Last turn of the branch that is shown; None in an empty chat.
        options: Of its requests, by their names in Ollama's API, and `truncate`.
        folder: Where the page lists it; empty: by its age.
    """

    id: int
    title: str
    model: str
    effort: str
    n_turns: int
    created_s: Moment
    updated_s: Moment
    leaf_id: int | None
    options: dict[str, Any] = {}
    preset: str = ""
    is_pinned: bool = False
    folder: str = ""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a search found.

    Attributes:
        turn_id: None if the chat's title matches.
        snippet: The words around the matches on one line, each match between `MATCH_START` and
            `MATCH_END`; without other control characters.
    """

    chat_id: int
    turn_id: int | None
    title: str
    snippet: str
    created_s: Moment


TURN_COLUMNS = ", ".join(opened(f"turn.{name}") for name in Turn.__struct_fields__)
CHAT_COLUMNS = ", ".join(
    # A leaf of another chat, which only another program can have written, is none.
    "(SELECT id FROM turn WHERE id = leaf_id AND chat_id = chat.id)"
    if name == "leaf_id"
    else opened(f"chat.{name}")
    for name in ChatSummary.__struct_fields__
)
_MAX_TITLE_CHARS = 80  # of the first question, in place of a title if there is none


def read_turn(row: tuple[Any, ...]) -> Turn:
    values = dict(zip(Turn.__struct_fields__, row, strict=True))
    values["tool_calls"] = tuple(json.loads(values["tool_calls"]))
    values["stats"] = json.loads(values["stats"])
    return Turn(**values)


def read_chat(row: tuple[Any, ...]) -> ChatSummary:
    values = dict(zip(ChatSummary.__struct_fields__, row, strict=True))
    values["options"] = json.loads(values["options"])
    values["is_pinned"] = bool(values["is_pinned"])
    return ChatSummary(**values)


def write_json(value: Any) -> str:
    return storable(json.dumps(value, ensure_ascii=False))


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of columns for what Python has: JSON, and texts that can be stored."""
    return {
        name: storable(value)
        if isinstance(value, str)
        else write_json(value)
        if isinstance(value, dict | list | tuple)
        else value
        for name, value in values.items()
    }


def insert_chat(database: sqlite3.Connection, chat: ChatSummary) -> int:
    values = stored(msgspec.structs.asdict(chat)) | {
        "title": one_line(chat.title),
        "preset": one_line(chat.preset),
        "folder": one_line(chat.folder),
        "n_turns": 0,
        "leaf_id": None,
    }
    return _insert(database, "chat", values)


def insert_turn(
    database: sqlite3.Connection, turn: Turn, owner: str = "", *, moves_leaf: bool = True
) -> int:
    """Insert `turn` with a new id, which is returned, and make it the leaf, as `add` says."""
    values = stored(msgspec.structs.asdict(turn)) | {"owner": owner}
    turn_id = _insert(database, "turn", values)
    database.execute(
        "UPDATE chat SET n_turns = n_turns + 1, updated_s = ?, "
        "leaf_id = CASE WHEN ? OR leaf_id IS NULL OR leaf_id = ? THEN ? ELSE leaf_id END "
        "WHERE id = ?",
        (turn.created_s, moves_leaf, turn.parent_id, turn_id, turn.chat_id),
    )
    if turn.role == "user":
        title = "chat.title"
        database.execute(
            f"UPDATE chat SET title = {sealed(title)} WHERE id = ? AND {opened(title)} = ''",
            (title_of(turn.content, turn.stats), turn.chat_id),
        )
    return turn_id


def _insert(database: sqlite3.Connection, table: str, values: dict[str, Any]) -> int:
    """Insert a row with the next id, which its texts are sealed for; return the id."""
    query = "SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = ?"
    ((row_id,),) = database.execute(query, (table,)).fetchall()
    marks = ", ".join(sealed(f"{table}.{name}", f":{name}", row=":") for name in values)
    database.execute(
        f"INSERT INTO {table}({', '.join(values)}) VALUES ({marks})", values | {"id": row_id}
    )
    return int(row_id)


def title_of(question: str, stats: dict[str, Any]) -> str:
    """Return the beginning of a question without its files, or else their names."""
    folds = stats.get("folds", [])
    typed, end = "", 0
    for start, stop, _ in folds:
        typed, end = f"{typed} {question[end:start]}", stop
    typed = one_line(f"{typed} {question[end:]}", _MAX_TITLE_CHARS)
    return typed or one_line(", ".join(label for *_, label in folds), _MAX_TITLE_CHARS)


def insert_tree(database: sqlite3.Connection, chat: ChatSummary, turns: list[Turn]) -> int:
    chat_id = insert_chat(database, chat)
    new_ids: dict[int | None, int | None] = {None: None}
    for turn in turns:
        moved = msgspec.structs.replace(turn, chat_id=chat_id, parent_id=new_ids[turn.parent_id])
        new_ids[turn.id] = insert_turn(database, moved)
    database.execute(
        "UPDATE chat SET leaf_id = ?, updated_s = ? WHERE id = ?",
        (new_ids[chat.leaf_id], chat.updated_s, chat_id),
    )
    return chat_id
