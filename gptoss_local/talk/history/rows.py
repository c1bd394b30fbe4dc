"""Rows of the tables as values, and back. Callers hold the transaction."""

import json
import sqlite3
from typing import Any

import msgspec

from gptoss_local.talk.history.lock import opened, sealed
from gptoss_local.talk.history.plain import one_line, storable
from gptoss_local.talk.history.turn import ChatSummary, Turn

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


def insert_chat(database: sqlite3.Connection, chat: ChatSummary) -> int:
    values = msgspec.structs.asdict(chat) | {
        "title": one_line(chat.title),
        "model": storable(chat.model),
        "effort": storable(chat.effort),
        "options": write_json(chat.options),
        "preset": one_line(chat.preset),
        "folder": one_line(chat.folder),
        "n_turns": 0,
        "leaf_id": None,
    }
    return _insert(database, "chat", values)


def insert_turn(database: sqlite3.Connection, turn: Turn, owner: str = "") -> int:
    """Insert `turn` with a new id, which is returned, and make it the leaf of its chat."""
    values = msgspec.structs.asdict(turn) | {
        "tool_calls": write_json(turn.tool_calls),
        "stats": write_json(turn.stats),
        "owner": owner,
    }
    for name in ("content", "reasoning", "tool_name", "model", "effort"):
        values[name] = storable(values[name])
    turn_id = _insert(database, "turn", values)
    database.execute(
        "UPDATE chat SET leaf_id = ?, n_turns = n_turns + 1, updated_s = ? WHERE id = ?",
        (turn_id, turn.created_s, turn.chat_id),
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
    """Insert a chat with its turns, parents before their children, all with new ids."""
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
