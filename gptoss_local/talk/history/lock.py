"""The passphrase of the chats, and the texts in the tables that are encrypted with it.

A random key encrypts the texts, each for its place; the passphrase encrypts that key.
"""

import base64
import hashlib
import secrets
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gptoss_local.base.errors import AnsweringError, HistoryError, HistoryLockedError, UsageError
from gptoss_local.base.private import mark_private
from gptoss_local.talk.history.schema import (
    DROP_SEARCH,
    MEMORY,
    SEARCH,
    stop_orphans,
    transaction,
    translated,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_TEXTS = {
    "chat": ("title", "model", "effort", "options", "preset", "folder"),
    "turn": ("content", "reasoning", "tool_calls", "tool_name", "model", "effort", "stats"),
}
_ALL_TEXTS = {f"{table}.{name}" for table, names in _TEXTS.items() for name in names}
_ROWS = {"chat": ("id",), "turn": ("id", "chat_id", "parent_id", "role")}
"""Columns that bind a text to its row: it is refused in any other."""
_FORMAT = "gptoss 1"
_SEALED = "\0"  # the first character of an encrypted text, which no other has: see `storable`
_NONCE_BYTES = 12
_N, _R, _P = 1 << 17, 8, 1  # scrypt: 128 MiB and 0.4 s
_SALT_BYTES = 16
RESTORE = "Put back a copy of the file from before, or move it away to start again."


def opened(column: str) -> str:
    """Return the SQL that reads a column, such as `turn.content`."""
    return f"opened({column}, {_place(column)})" if column in _ALL_TEXTS else column


def sealed(column: str, value: str = "?", *, row: str = "") -> str:
    """Return the SQL that makes a value one of a column; `row` precedes the row's own names."""
    return f"sealed({value}, {_place(column, row)})" if column in _ALL_TEXTS else value


def _place(column: str, row: str = "") -> str:
    table = column.partition(".")[0]
    return ", ".join([f"'{column}'", *(f"{row or f'{table}.'}{name}" for name in _ROWS[table])])


class Lock:
    """Holds one connection's key to the file; its methods raise HistoryError as `History`'s."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self.n_unlocked = 0
        self._key_id: bytes | None = None
        self._opens: AESGCM | None = None
        self._seals: AESGCM | None = None  # the same, but while all texts are written again
        self._refused = ""  # names a text that cannot be opened
        database.create_function("sealed", -1, self._seal)
        database.create_function("opened", -1, self._open)
        if path != MEMORY:
            with translated(path):  # the file may be a copy
                mark_private(path, is_private=self._kept_id() is not None)

    @property
    def is_set(self) -> bool:
        with translated(self._path):
            return self._kept_id() is not None

    @property
    def is_locked(self) -> bool:
        """Return whether texts cannot be read; another process may have changed the passphrase."""
        with translated(self._path):
            kept = self._kept_id()
        if kept != self._key_id:
            self._take(None, None)
        return kept != self._key_id

    def check(self) -> None:
        """Raise HistoryLockedError if texts cannot be read; callers hold the transaction."""
        if self.is_locked:
            raise HistoryLockedError(
                "The chats are locked.",
                hint="Enter the passphrase: reload the page, or start `gptoss chat` again. For a "
                "service, set GPTOSS_PASSPHRASE.",
            )

    def unlock(self, passphrase: str) -> None:
        """Make the chats readable here. Raises HistoryLockedError for a wrong passphrase."""
        with translated(self._path):
            self._unwrap(passphrase)
            # The log may still have plain text, if the process that set it was killed.
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.n_unlocked += 1

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate errors as the function does, and name the text that is refused."""
        try:
            with translated(self._path):
                yield
        except HistoryError as error:
            refused, self._refused = self._refused, ""
            if not refused:
                raise
            message = (
                f"{refused} in {self._path} is not as gptoss wrote it: it was changed, or moved."
            )
            raise HistoryError(message, hint=RESTORE) from error

    def change(self, old: str | None, new: str | None) -> None:
        """Write all texts again, so that no byte of them, or of the old key, stays in the file.

        Without an `old` passphrase there was none, without a `new` one texts are plain after it.
        """
        with self.translated(), self._marked(is_private=new is not None):
            with transaction(self._database):
                stop_orphans(self._database)
                found = self._database.execute("SELECT 1 FROM turn WHERE state = 'streaming'")
                if found.fetchone():
                    hint = "Wait for it, or stop it."
                    raise AnsweringError("an answer is being written", hint=hint)
                if old is not None:
                    self._unwrap(old)
                elif self.is_set:
                    raise UsageError("the chats have a passphrase", hint="gptoss passphrase change")
                else:
                    self._take(None, None)
                    self._execute(DROP_SEARCH)
                self._execute(("DELETE FROM passphrase",))
                self._key_id, self._seals = (None, None) if new is None else self._wrapped(new)
                for table, names in _TEXTS.items():
                    columns = [f"{table}.{name}" for name in names]
                    texts = (sealed(column, opened(column)) for column in columns)
                    changes = ", ".join(map("{} = {}".format, names, texts))
                    self._database.execute(f"UPDATE {table} SET {changes}")
                self._take(self._key_id, self._seals)
                if new is None:
                    self._execute(SEARCH)
                    for table in ("turn_words", "chat_words"):
                        self._database.execute(f"INSERT INTO {table}({table}) VALUES ('rebuild')")
            self._execute(("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"))

    @contextmanager
    def _marked(self, *, is_private: bool) -> Iterator[None]:
        """Mark private chats before their texts are encrypted, and others after."""
        if is_private:
            mark_private(self._path, is_private=True)
        try:
            yield
        finally:
            mark_private(self._path, is_private=self._kept_id() is not None)

    def _kept_id(self) -> bytes | None:
        row = self._database.execute("SELECT key_id FROM passphrase").fetchone()
        return None if row is None else row[0]

    def _unwrap(self, passphrase: str) -> None:
        from cryptography.exceptions import InvalidTag  # PERF: only who has a passphrase needs it
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        row = self._database.execute("SELECT key_id, salt, n, r, p, wrapped FROM passphrase")
        if (kept := row.fetchone()) is None:
            raise UsageError("the chats have no passphrase", hint="gptoss passphrase set")
        key_id, salt, *cost, wrapped = kept
        if [*cost, len(salt)] != [_N, _R, _P, _SALT_BYTES]:  # what a file asks for may take hours
            message = f"The passphrase in {self._path} is not as gptoss writes it."
            raise HistoryError(message, hint=RESTORE)
        wrapping = _derived(passphrase, salt)
        try:
            key = wrapping.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], key_id)
        except (InvalidTag, ValueError) as error:
            raise HistoryLockedError("The passphrase is wrong.") from error
        self._take(key_id, AESGCM(key))

    def _take(self, key_id: bytes | None, cipher: "AESGCM | None") -> None:
        self._key_id, self._opens, self._seals = key_id, cipher, cipher
        # What an encrypted file brings along, such as a trigger, calls no function of ours.
        self._database.execute(f"PRAGMA trusted_schema = {cipher is None}")

    def _wrapped(self, passphrase: str) -> tuple[bytes, "AESGCM"]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, key = secrets.token_bytes(16), secrets.token_bytes(32)
        salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
        wrapped = nonce + _derived(passphrase, salt).encrypt(nonce, key, key_id)
        self._database.execute(
            "INSERT INTO passphrase(id, key_id, salt, n, r, p, wrapped) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (key_id, salt, _N, _R, _P, wrapped),
        )
        return key_id, AESGCM(key)

    def _execute(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            self._database.execute(statement).fetchall()

    def _seal(self, text: str, *place: str | int | None) -> str:
        if self._seals is None:
            return text
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = nonce + self._seals.encrypt(nonce, text.encode(), _named(place))
        return _SEALED + base64.b64encode(data).decode()

    def _open(self, text: str, *place: str | int | None) -> str:
        """Return a text in plain. SQLite replaces errors raised here by its own."""
        self._refused = "The {} of {}".format(*place)
        if text.startswith(_SEALED) != (self._opens is not None):
            raise ValueError("in plain with a passphrase, or encrypted without one")
        if self._opens is not None:
            data = base64.b64decode(text[1:])
            text = self._opens.decrypt(
                data[:_NONCE_BYTES], data[_NONCE_BYTES:], _named(place)
            ).decode()
        self._refused = ""
        return text


def _named(place: tuple[str | int | None, ...]) -> bytes:
    return repr((_FORMAT, *place)).encode()


def _derived(passphrase: str, salt: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not passphrase:
        raise UsageError("the passphrase is empty")
    words = unicodedata.normalize("NFC", passphrase).encode()
    memory = 2 * 128 * _N * _R
    return AESGCM(hashlib.scrypt(words, salt=salt, n=_N, r=_R, p=_P, maxmem=memory, dklen=32))
