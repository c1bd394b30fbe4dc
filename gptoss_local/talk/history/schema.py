"""The SQLite file of chats: its tables, and its errors as ours."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gptoss_local.base.errors import HistoryError

_APPLICATION_ID = 0x67_70_74_31  # "gpt1", in the header of the file
MEMORY = Path(":memory:")  # stands for chats that no other process sees, and that end with this one

FIRST_TEMPORARY = 1 << 30
"""Ids of chats and turns in memory begin here, so that none is also in the file."""

_CLOCK_STEP_S = 5.0  # start times derive from the wall clock, which may be adjusted
_BUSY_S = 5.0  # how long to wait for another process that writes

_ADD, _DROP = (
    "INSERT INTO {0}_words(rowid, {1}) VALUES (new.id, new.{1});",
    "INSERT INTO {0}_words({0}_words, rowid, {1}) VALUES ('delete', old.id, old.{1});",
)
_ADD_TURN, _DROP_TURN = (each.format("turn", "content") for each in (_ADD, _DROP))
_ADD_CHAT, _DROP_CHAT = (each.format("chat", "title") for each in (_ADD, _DROP))
_REWRITTEN, _IS_WHOLE = "UPDATE OF content, state ON turn", "WHEN {}.state <> 'streaming'"

SEARCH = (
    # Words of turns and titles. The text itself is only in the tables above, so an entry must be
    # removed with exactly the text it was made of. A turn has one unless it is streaming: to
    # index a long answer again every second would be waste. PERF: `prefix` makes the search for a
    # letter, the first one typed, eight times as fast, and the file a fifth larger.
    """
    CREATE VIRTUAL TABLE turn_words USING fts5(
        content, content='turn', content_rowid='id', tokenize='unicode61 remove_diacritics 2',
        prefix='1 2')
    """,
    """
    CREATE VIRTUAL TABLE chat_words USING fts5(
        title, content='chat', content_rowid='id', tokenize='unicode61 remove_diacritics 2')
    """,
    *(
        f"CREATE TRIGGER {name} {when} BEGIN {' '.join(changes)} END"
        for name, when, *changes in (
            ("turn_insert", f"AFTER INSERT ON turn {_IS_WHOLE.format('new')}", _ADD_TURN),
            ("turn_delete", f"AFTER DELETE ON turn {_IS_WHOLE.format('old')}", _DROP_TURN),
            ("turn_update_before", f"BEFORE {_REWRITTEN} {_IS_WHOLE.format('old')}", _DROP_TURN),
            ("turn_update_after", f"AFTER {_REWRITTEN} {_IS_WHOLE.format('new')}", _ADD_TURN),
            ("chat_insert", "AFTER INSERT ON chat", _ADD_CHAT),
            ("chat_delete", "AFTER DELETE ON chat", _DROP_CHAT),
            ("chat_update", "AFTER UPDATE OF title ON chat", _DROP_CHAT, _ADD_CHAT),
        )
    ),
)
"""The index of the search, which a file with a passphrase lacks."""
DROP_SEARCH = (
    *(f"DROP TRIGGER {name}" for name in re.findall(r"CREATE TRIGGER (\w+)", "".join(SEARCH))),
    "DROP TABLE turn_words",
    "DROP TABLE chat_words",
)

_TABLES = (
    """
    CREATE TABLE chat (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given again, as others may remember it
        title TEXT NOT NULL,
        model TEXT NOT NULL,
        effort TEXT NOT NULL,
        leaf_id INTEGER,
        n_turns INTEGER NOT NULL DEFAULT 0,
        created_s REAL NOT NULL,
        updated_s REAL NOT NULL,
        options TEXT NOT NULL,  -- JSON
        preset TEXT NOT NULL,
        is_pinned INTEGER NOT NULL,
        folder TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX chat_by_age ON chat(updated_s, id)",
    "CREATE INDEX chat_pinned ON chat(is_pinned DESC, updated_s DESC, id DESC)",
    """
    CREATE TABLE turn (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- a child's is larger than its parent's
        chat_id INTEGER NOT NULL REFERENCES chat(id) ON DELETE CASCADE,
        parent_id INTEGER REFERENCES turn(id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
        content TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        tool_calls TEXT NOT NULL,  -- JSON
        tool_name TEXT NOT NULL,
        model TEXT NOT NULL,
        effort TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('streaming', 'done', 'stopped', 'failed')),
        stats TEXT NOT NULL,  -- JSON
        created_s REAL NOT NULL,
        owner TEXT NOT NULL,  -- the process that streams it
        revision INTEGER NOT NULL DEFAULT 0  -- grows with each change of a turn of its chat
    ) STRICT
    """,
    "CREATE INDEX turn_by_revision ON turn(chat_id, revision)",
    *(
        f"""
        CREATE TRIGGER turn_revised_by_{when.partition(" ")[0]} AFTER {when} ON turn BEGIN
            UPDATE turn SET revision = 1 + (
                SELECT max(revision) FROM turn WHERE chat_id = new.chat_id)
            WHERE id = new.id;
        END
        """
        for when in ("INSERT", "UPDATE OF content, reasoning, tool_calls, state, stats")
    ),
    "CREATE INDEX turn_by_parent ON turn(chat_id, parent_id)",
    "CREATE INDEX turn_by_parent_alone ON turn(parent_id)",  # for ON DELETE CASCADE
    "CREATE INDEX turn_streaming ON turn(owner) WHERE state = 'streaming'",
    """
    CREATE TABLE passphrase (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        key_id BLOB NOT NULL,
        salt BLOB NOT NULL,
        n INTEGER NOT NULL, r INTEGER NOT NULL, p INTEGER NOT NULL,  -- of scrypt
        wrapped BLOB NOT NULL  -- the key of all texts, encrypted with the passphrase's key
    ) STRICT
    """,
    *SEARCH,
)


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, or make it, readable by its owner only."""
    with translated(path):
        if path != MEMORY:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            database.execute("BEGIN")  # one view of the file: another process may just make it
            _has_tables(database, path)  # before the first write
            database.execute("COMMIT")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing, a power cut
            database.execute("PRAGMA foreign_keys = ON")  # perhaps the last transactions
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA temp_store = MEMORY")  # a passphrase leaves no text elsewhere
            with transaction(database):  # of several processes the first one makes the tables
                for statement in () if _has_tables(database, path) else _TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            if path == MEMORY:
                numbers = [(table, FIRST_TEMPORARY) for table in ("chat", "turn")]
                database.executemany(
                    "INSERT INTO sqlite_sequence(name, seq) VALUES (?, ?)", numbers
                )
        except BaseException:
            database.close()
            raise
    return database


def check_file(path: Path) -> None:
    """Raise HistoryError if the file, which must exist, cannot be used; change nothing."""
    with translated(path):
        uri = f"{path.absolute().as_uri()}?mode=rw"  # read-only would leave a -shm file
        with contextlib.closing(sqlite3.connect(uri, timeout=_BUSY_S, uri=True)) as database:
            _has_tables(database, path)
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise HistoryError(f"{path} is damaged: {said}", hint=_MOVE.format(path=path))


@contextlib.contextmanager
def transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commit all or nothing; wait for other writers at the start, not in the middle."""
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # after some errors SQLite has rolled back itself
            database.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HistoryError(
            f"The chats in {path} cannot be opened: {error.strerror}.", hint=_HINTS["CANTOPEN"]
        ) from error
    except sqlite3.ProgrammingError:
        raise  # closed, or another thread: our mistake, not the file's
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT").split("_")[1]
        hint = _HINTS.get(code, "").format(path=path)
        raise HistoryError(f"The chats in {path} cannot be used: {error}.", hint=hint) from error


_MOVE = "Move {path} away to start again; `sqlite3 {path} .recover` may save what is in it."
_HINTS = {
    "CORRUPT": _MOVE,
    "NOTADB": _MOVE,
    "FULL": "Make room on the disk; what was saved before is safe.",
    "IOERR": "Check the disk: it may be full or broken; what was saved before is safe.",
    "BUSY": "Another gptoss process has been writing for a long time; try again when it is done.",
    "READONLY": "Make the file and its folder writable for you.",
    "CANTOPEN": "Make the folder writable for you, or set GPTOSS_HOME.",
}


def _has_tables(database: sqlite3.Connection, path: Path) -> bool:
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (n_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if n_tables and application_id != _APPLICATION_ID:
        message = f"{path} is the file of another program, or of another version of gptoss."
        raise HistoryError(message, hint="Move it away.")
    return bool(n_tables)


def this_process() -> str:
    """Name this process so that no later one with the same id is taken for it."""
    import psutil  # PERF: 12 ms, and needed with the first answer

    return f"{os.getpid()} {psutil.Process().create_time():.2f}"


def is_alive(owner: str) -> bool:
    """Return whether the process that `this_process` named still runs; False for other text."""
    import psutil

    try:
        pid, started_s = owner.split()
        process = psutil.Process(int(pid))
        is_same = abs(process.create_time() - float(started_s)) < _CLOCK_STEP_S
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (ValueError, psutil.NoSuchProcess):
        return False
    except psutil.AccessDenied:
        return True


def stop_orphans(database: sqlite3.Connection) -> None:
    owners = database.execute("SELECT DISTINCT owner FROM turn WHERE state = 'streaming'")
    dead = [row for row in owners.fetchall() if not is_alive(row[0])]
    database.executemany(
        "UPDATE turn SET state = 'stopped' WHERE state = 'streaming' AND owner = ?", dead
    )
