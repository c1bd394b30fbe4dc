"""Rows of the tables as values, and back. Callers hold the transaction."""

import json
import sqlite3
from typing import Any

import msgspec

from gptoss_local.talk.history.lock import opened, sealed
from gptoss_local.talk.history.plain import one_line, storable
from gptoss_local.talk.history.turn import ChatSummary, Turn

TURN_COLUMNS = ", ".join(map(opened, Turn.__struct_fields__))
CHAT_COLUMNS = ", ".join(map(opened, ChatSummary.__struct_fields__))
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
    """Return JSON that SQLite can store."""
    return storable(json.dumps(value, ensure_ascii=False))


def insert_chat(database: sqlite3.Connection, chat: ChatSummary) -> int:
    """Insert a chat without turns; return its new id."""
    names = (one_line(chat.title), storable(chat.model), storable(chat.effort))
    others = (write_json(chat.options), one_line(chat.preset), chat.is_pinned)
    cursor = database.execute(
        "INSERT INTO chat(title, model, effort, options, preset, is_pinned, folder, "
        "created_s, updated_s) "
        "VALUES (sealed(?), ?, ?, sealed(?), sealed(?), ?, sealed(?), ?, ?)",
        (*names, *others, one_line(chat.folder), chat.created_s, chat.updated_s),
    )
    return int(cursor.lastrowid or 0)


def insert_turn(database: sqlite3.Connection, turn: Turn, owner: str = "") -> int:
    """Insert `turn` but for its id, which is returned, and make it the leaf of its chat.

    `owner` is the process that streams it.
    """
    values = msgspec.structs.asdict(turn) | {
        "tool_calls": write_json(turn.tool_calls),
        "stats": write_json(turn.stats),
        "owner": owner,
    }
    del values["id"]
    for name in ("content", "reasoning", "tool_name", "model", "effort"):
        values[name] = storable(values[name])
    marks = ", ".join(map(sealed, values))
    cursor = database.execute(
        f"INSERT INTO turn({', '.join(values)}) VALUES ({marks})", tuple(values.values())
    )
    turn_id = int(cursor.lastrowid or 0)
    database.execute(
        "UPDATE chat SET leaf_id = ?, n_turns = n_turns + 1, updated_s = ? WHERE id = ?",
        (turn_id, turn.created_s, turn.chat_id),
    )
    if turn.role == "user":
        database.execute(
            "UPDATE chat SET title = sealed(?) WHERE id = ? AND opened(title) = ''",
            (title_of(turn.content, turn.stats), turn.chat_id),
        )
    return turn_id


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
