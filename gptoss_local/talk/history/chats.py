"""All chats of a user: trees of turns in one file that several processes may have open."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import msgspec

from gptoss_local.base.errors import ChatNotFoundError, HistoryError
from gptoss_local.talk.history import export
from gptoss_local.talk.history.lock import RESTORE, Lock, opened, sealed
from gptoss_local.talk.history.plain import one_line, storable
from gptoss_local.talk.history.rows import (
    CHAT_COLUMNS,
    TURN_COLUMNS,
    ChatSummary,
    Hit,
    Role,
    Turn,
    TurnChanges,
    TurnFields,
    insert_chat,
    insert_tree,
    insert_turn,
    read_chat,
    read_turn,
    stored,
    title_of,
    write_json,
)
from gptoss_local.talk.history.schema import (
    FIRST_TEMPORARY,
    MEMORY,
    open_database,
    stop_orphans,
    this_process,
    transaction,
    translated,
)
from gptoss_local.talk.history.search import search


class History:
    """The chats in one SQLite file (WAL), or in `MEMORY`. Use it from one thread only.

    Every call is a transaction, so a killed process loses only the text that it had not handed
    over yet. Turns that a dead process left streaming become `stopped`.

    Raises (all methods):
        HistoryError: the file is damaged, full, in use, or not for this version.
        HistoryLockedError: it has a passphrase, and `lock.unlock` was not called.
        ChatNotFoundError: a chat or turn is missing, perhaps deleted by another process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = open_database(path)
        self.lock = Lock(self._database, path)
        self._streaming: set[int] = set()
        self._temporary: History | None = None
        with translated(path):
            stop_orphans(self._database)

    @cached_property
    def _owner(self) -> str:
        return this_process()

    @property
    def temporary(self) -> "History":
        self._temporary = self._temporary or History(MEMORY)
        return self._temporary

    def of(self, chat_id: int | None) -> "History":
        return self.temporary if is_temporary(chat_id) else self

    @property
    def version(self) -> tuple[int, int]:
        """Return counters of other processes' writes and of ours. PERF: 10 µs, so poll freely."""
        with translated(self.path):
            ((n_others,),) = self._database.execute("PRAGMA data_version").fetchall()
        n_temporary = self._temporary.version[1] if self._temporary else 0
        return n_others, self._database.total_changes + n_temporary + self.lock.n_unlocked

    def stop_orphans(self) -> None:
        with translated(self.path):
            stop_orphans(self._database)

    def new_chat(
        self,
        model: str,
        effort: str,
        title: str = "",
        *,
        preset: str = "",
        options: dict[str, Any] | None = None,
    ) -> int:
        """Make an empty chat; without a title it gets the beginning of its first question."""
        now_s = time.time()
        chat = ChatSummary(
            id=0,
            title=title,
            model=model,
            effort=effort,
            n_turns=0,
            created_s=now_s,
            updated_s=now_s,
            leaf_id=None,
            options=options or {},
            preset=preset,
        )
        with self._write():
            return insert_chat(self._database, chat)

    def chats(self, limit: int = 100, *, pinned_first: bool = False) -> list[ChatSummary]:
        """Return the chats with the newest turns, newest first; pinned ones first if asked."""
        pinned = "is_pinned DESC, " if pinned_first else ""
        order = f"{pinned}updated_s DESC, id DESC"
        query = f"SELECT {CHAT_COLUMNS} FROM chat ORDER BY {order} LIMIT ?"
        return [read_chat(row) for row in self._rows(query, (limit,))]

    def chats_by_folder(self, limit: int) -> list[ChatSummary]:
        """Return pinned chats, then the newest `limit` of each folder and of those in none."""
        query = f"""
            WITH place AS (SELECT id AS chat_id, row_number() OVER (
                PARTITION BY {opened("chat.folder")} ORDER BY updated_s DESC, id DESC) AS n
                FROM chat WHERE NOT is_pinned)
            SELECT {CHAT_COLUMNS} FROM chat LEFT JOIN place ON chat_id = chat.id
            WHERE is_pinned OR n <= ? ORDER BY is_pinned DESC, updated_s DESC, chat.id DESC
        """
        return [read_chat(row) for row in self._rows(query, (limit,))]

    def answering(self) -> list[int]:
        query = "SELECT DISTINCT chat_id FROM turn WHERE state = 'streaming' ORDER BY chat_id"
        return [chat_id for (chat_id,) in self._rows(query)]

    def chat(self, chat_id: int) -> ChatSummary:
        rows = self._rows(f"SELECT {CHAT_COLUMNS} FROM chat WHERE id = ?", (chat_id,))
        if not rows:
            raise _no_chat(chat_id)
        return read_chat(rows[0])

    def has(self, chat_id: int) -> bool:
        return bool(self._rows("SELECT 1 FROM chat WHERE id = ?", (chat_id,)))

    def rename(self, chat_id: int, title: str) -> None:
        self._change_chat(chat_id, title=one_line(title))

    def has_title(self, chat_id: int) -> bool:
        query = (
            f"SELECT {opened('chat.title')}, {opened('turn.content')}, {opened('turn.stats')} "
            "FROM chat JOIN turn ON chat_id = chat.id "
            "WHERE chat.id = ? AND role = 'user' ORDER BY turn.id LIMIT 1"
        )
        rows = self._rows(query, (chat_id,))
        return not rows or rows[0][0] != title_of(rows[0][1], json.loads(rows[0][2]))

    def give_title(self, chat: ChatSummary, title: str) -> bool:
        """Rename a chat unless its title has changed meanwhile; return whether it was done."""
        with self._write():
            column = "chat.title"
            change = (
                f"UPDATE chat SET title = {sealed(column)} WHERE id = ? AND {opened(column)} = ?"
            )
            values = (one_line(title), chat.id, chat.title)
            return bool(self._database.execute(change, values).rowcount)

    def pin(self, chat_id: int, is_pinned: bool) -> None:
        self._change_chat(chat_id, is_pinned=is_pinned)

    def move(self, chat_id: int, folder: str) -> None:
        """Move a chat to a folder, or to none if empty. Empty folders disappear."""
        self._change_chat(chat_id, folder=one_line(folder))

    def set_model(self, chat_id: int, model: str, effort: str) -> None:
        """Set the model that the chat continues with; existing turns keep theirs."""
        self._change_chat(chat_id, model=storable(model), effort=storable(effort))

    def set_options(self, chat_id: int, options: dict[str, Any]) -> None:
        self._change_chat(chat_id, options=write_json(options))

    def delete(self, chat_id: int) -> None:
        """Remove a chat, its turns and its words, so that no byte of them stays in the file."""
        with self._write():
            found = self._database.execute("DELETE FROM chat WHERE id = ?", (chat_id,)).rowcount
        if not found:
            raise _no_chat(chat_id)
        with self._write():  # deleted words stay in the index until it is rebuilt
            for table in () if self.lock.is_set else ("turn_words", "chat_words"):
                self._database.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")
        with translated(self.path):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def add(
        self,
        chat_id: int,
        parent_id: int | None,
        role: Role,
        content: str,
        *,
        moves_leaf: bool = True,
        **fields: Unpack[TurnFields],
    ) -> Turn:
        """Append a turn; `update` must follow `state="streaming"`.

        It becomes the leaf of its chat; unless it `moves_leaf`, only if its parent was that.
        """
        turn = Turn(
            id=0,
            chat_id=chat_id,
            parent_id=parent_id,
            role=role,
            content=content,
            created_s=time.time(),
            **fields,
        )
        with self._write():
            self._check_place(chat_id, parent_id)
            turn_id = insert_turn(self._database, turn, self._owner, moves_leaf=moves_leaf)
        if turn.state == "streaming":
            self._streaming.add(turn_id)
        return self.turn(turn_id)

    def update(self, turn_id: int, **changes: Unpack[TurnChanges]) -> None:
        """Replace the given fields. Searches find a turn once it no longer streams."""
        state = changes.get("state")
        given = {name: value for name, value in stored(changes).items() if value is not None}
        given |= {"owner": self._owner} if state == "streaming" else {}
        if not given:
            return
        columns = ", ".join(f"{name} = {sealed(f'turn.{name}')}" for name in given)
        with self._write():
            found = self._database.execute(
                f"UPDATE turn SET {columns} WHERE id = ?", (*given.values(), turn_id)
            )
        if not found.rowcount:
            raise _no_turn(turn_id)
        if state == "streaming":
            self._streaming.add(turn_id)
        elif state is not None:
            self._streaming.discard(turn_id)

    def turn(self, turn_id: int) -> Turn:
        rows = self._rows(f"SELECT {TURN_COLUMNS} FROM turn WHERE id = ?", (turn_id,))
        if not rows:
            raise _no_turn(turn_id)
        return read_turn(rows[0])

    def questions(self, limit: int = 1000) -> list[Turn]:
        query = f"SELECT {TURN_COLUMNS} FROM turn WHERE role = 'user' ORDER BY id DESC LIMIT ?"
        return [read_turn(row) for row in self._rows(query, (limit,))]

    def tree(self, chat_id: int) -> list[Turn]:
        """Return all turns of a chat, parents before their children, older ones first."""
        self.chat(chat_id)
        query = f"SELECT {TURN_COLUMNS} FROM turn WHERE chat_id = ? ORDER BY id"
        return [read_turn(row) for row in self._rows(query, (chat_id,))]

    def changed(self, chat_id: int, since: int = 0) -> tuple[list[Turn], int]:
        """Return a chat's turns written after a revision, older ones first, and the newest one."""
        query = (
            f"SELECT {TURN_COLUMNS}, revision FROM turn "
            "WHERE chat_id = ? AND revision > ? ORDER BY id"
        )
        rows = self._rows(query, (chat_id, since))
        return [read_turn(row[:-1]) for row in rows], max([since, *(row[-1] for row in rows)])

    def branch(self, leaf_id: int | None) -> list[Turn]:
        """Return the turns from the first one down to `leaf_id`; none for None."""
        if leaf_id is None:
            return []
        query = f"""
            WITH RECURSIVE up(turn_id, above) AS (
                SELECT id, parent_id FROM turn WHERE id = ?
                UNION ALL SELECT id, parent_id FROM turn JOIN up ON id = above)
            SELECT {TURN_COLUMNS} FROM up JOIN turn ON id = turn_id ORDER BY id
        """
        turns = [read_turn(row) for row in self._rows(query, (leaf_id,))]
        if not turns:
            raise _no_turn(leaf_id)
        if (missing := turns[0].parent_id) is not None:
            raise HistoryError(
                f"Turn {missing} of chat {turns[0].chat_id} is missing.", hint=RESTORE
            )
        return turns

    def siblings(self, turn_id: int) -> list[int]:
        turn = self.turn(turn_id)
        query = "SELECT id FROM turn WHERE chat_id = ? AND parent_id IS ? ORDER BY id"
        return [row[0] for row in self._rows(query, (turn.chat_id, turn.parent_id))]

    def select(self, turn_id: int) -> list[Turn]:
        """Make the newest turn below `turn_id` (or itself) the chat's leaf; return that branch."""
        chat_id = self.turn(turn_id).chat_id
        query = """
            WITH RECURSIVE down(turn_id) AS (
                SELECT ? UNION ALL SELECT id FROM turn JOIN down ON parent_id = turn_id)
            SELECT max(turn_id) FROM down
        """
        ((leaf_id,),) = self._rows(query, (turn_id,))
        self._change_chat(chat_id, leaf_id=leaf_id)
        return self.branch(leaf_id)

    def search(self, words: str, limit: int = 50) -> list[Hit]:
        """Find turns and titles with all `words`; best matches first.

        Case and accents do not count, the last word may be unfinished, and quotes make a phrase.
        """
        with self._read():
            return search(self._database, words, limit, has_index=not self.lock.is_set)

    def export_markdown(self, chat_id: int) -> str:
        chat = self.chat(chat_id)
        return export.render_markdown(chat, self.branch(chat.leaf_id))

    def export_json(self, chat_id: int) -> str:
        return export.render_json(self.chat(chat_id), self.tree(chat_id))

    def add_tree(self, chat: ChatSummary, turns: list[Turn]) -> ChatSummary:
        """Add an imported chat; one of another program gets the model of the newest chat."""
        if not chat.model and (last := self.chats(limit=1)):
            chat = msgspec.structs.replace(chat, model=last[0].model)
        with self._write():
            chat_id = insert_tree(self._database, chat, turns)
        return self.chat(chat_id)

    def set_system(self, chat_id: int, content: str) -> list[Turn]:
        """Continue the shown branch, copied, below another system message; empty: below none."""
        branch = self.branch(self.chat(chat_id).leaf_id)
        told = [turn.content for turn in branch[:1] if turn.role == "system"]
        if content == "".join(told):
            return branch
        return self.branch_off(chat_id, content, branch[len(told) :])

    def branch_off(self, chat_id: int, system: str, turns: Sequence[Turn]) -> list[Turn]:
        """Show a new branch, which is returned: a system message, if any, and copies of turns."""
        place: dict[str, Any] = {"id": 0, "chat_id": chat_id, "created_s": time.time()}
        told = Turn(parent_id=None, role="system", content=system, **place)
        leaf_id: int | None = None
        with self._write():
            for turn in [*([told] if system else []), *turns]:
                copy = msgspec.structs.replace(turn, parent_id=leaf_id)
                leaf_id = insert_turn(self._database, copy)
            if leaf_id is None:
                empty = "UPDATE chat SET leaf_id = NULL WHERE id = ?"
                self._database.execute(empty, (chat_id,))
        return self.branch(leaf_id)

    def fork(self, turn_id: int) -> int:
        """Make a new chat of the branch down to a turn, and return its id."""
        turns = self.branch(turn_id)
        chat = self.chat(turns[-1].chat_id)
        changes: dict[str, Any] = {"leaf_id": turn_id, "updated_s": time.time()}
        copy = msgspec.structs.replace(chat, is_pinned=False, **changes)
        with self._write():
            return insert_tree(self._database, copy, turns)

    def close(self) -> None:
        """Close the file; turns that still stream here become `stopped`."""
        try:
            if self._streaming:
                with translated(self.path), transaction(self._database):
                    self._database.executemany(
                        "UPDATE turn SET state = 'stopped' WHERE id = ? AND state = 'streaming'",
                        [(turn_id,) for turn_id in self._streaming],
                    )
        finally:
            self._database.close()
            if self._temporary is not None:
                self._temporary.close()

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._read():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _read(self) -> Iterator[None]:
        with self.lock.translated(), transaction(self._database, "DEFERRED"):
            self.lock.check()
            yield

    @contextmanager
    def _write(self) -> Iterator[None]:
        with self.lock.translated(), transaction(self._database):
            self.lock.check()
            yield

    def _change_chat(self, chat_id: int, **values: str | int) -> None:
        columns = ", ".join(f"{name} = {sealed(f'chat.{name}')}" for name in values)
        with self._write():
            found = self._database.execute(
                f"UPDATE chat SET {columns} WHERE id = ?", (*values.values(), chat_id)
            )
        if not found.rowcount:
            raise _no_chat(chat_id)

    def _check_place(self, chat_id: int, parent_id: int | None) -> None:
        found = self._database.execute("SELECT 1 FROM chat WHERE id = ?", (chat_id,))
        if not found.fetchone():
            raise _no_chat(chat_id)
        found = self._database.execute("SELECT chat_id FROM turn WHERE id = ?", (parent_id,))
        if parent_id is not None and found.fetchone() != (chat_id,):
            raise _no_turn(parent_id)


def is_temporary(chat_id: int | None) -> bool:
    return chat_id is not None and chat_id >= FIRST_TEMPORARY


def _no_chat(chat_id: int) -> ChatNotFoundError:
    return ChatNotFoundError(f"There is no chat {chat_id}.", hint="`gptoss chats` lists the chats.")


def _no_turn(turn_id: int) -> ChatNotFoundError:
    return ChatNotFoundError(f"There is no turn {turn_id} in this chat.")
