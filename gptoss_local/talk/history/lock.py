"""The passphrase of the chats, and the texts in the tables that are encrypted with it.

A random key encrypts the texts; the passphrase encrypts that key, so another passphrase leaves the
texts as they are. Statements read and write texts with SQLite functions, `opened` and `sealed`.
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

from gptoss_local.errors import AnsweringError, HistoryLockedError, UsageError
from gptoss_local.talk.history import owner
from gptoss_local.talk.history.schema import DROP_SEARCH, SEARCH, transaction, translated

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_TEXTS = {
    "chat": ("title", "options", "preset", "folder"),
    "turn": ("content", "reasoning", "tool_calls", "tool_name", "stats"),
}
_ALL_TEXTS = {name for names in _TEXTS.values() for name in names}
_SEALED = "\0"  # the first character of an encrypted text, which no other has: see `storable`
_NONCE_BYTES = 12
_N, _R, _P = 1 << 17, 8, 1  # scrypt: 128 MiB and 0.4 s


def opened(name: str) -> str:
    """Return the SQL that reads a column."""
    return f"opened({name})" if name in _ALL_TEXTS else name


def sealed(name: str) -> str:
    """Return the SQL of a value for a column."""
    return "sealed(?)" if name in _ALL_TEXTS else "?"


class Lock:
    """Holds the key of one connection to the file; its methods raise HistoryError as `History`'s.

    `n_unlocked` counts calls of `unlock`.
    """

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self.n_unlocked = 0
        self._key_id: bytes | None = None
        self._cipher: AESGCM | None = None
        database.create_function("sealed", 1, self._seal)
        database.create_function("opened", 1, self._open)

    @property
    def is_set(self) -> bool:
        with translated(self._path):
            return self._kept_id() is not None

    @property
    def is_locked(self) -> bool:
        """Texts cannot be read; another process may have set or removed the passphrase."""
        with translated(self._path):
            kept = self._kept_id()
        if kept != self._key_id:
            self._key_id = self._cipher = None
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
        """Make the chats readable here. Raise HistoryLockedError if the passphrase is wrong."""
        with translated(self._path):
            self._unwrap(passphrase)
            # The log may still have plain text, if the process that set it was killed.
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.n_unlocked += 1

    def _unwrap(self, passphrase: str) -> bytes:
        from cryptography.exceptions import InvalidTag  # PERF: only who has a passphrase needs it

        row = self._database.execute("SELECT key_id, salt, n, r, p, wrapped FROM passphrase")
        if (kept := row.fetchone()) is None:
            raise UsageError("the chats have no passphrase", hint="gptoss passphrase set")
        key_id, salt, n, r, p, wrapped = kept
        wrapping = _derived(passphrase, salt, n, r, p)
        try:
            key = wrapping.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], key_id)
        except InvalidTag as error:
            raise HistoryLockedError("The passphrase is wrong.") from error
        self._take(key_id, key)
        return key

    def set(self, passphrase: str) -> None:
        """Encrypt all texts, so that no byte of them stays in the file."""
        key_id, key = secrets.token_bytes(16), secrets.token_bytes(32)
        with self._rewriting():
            if self.is_set:
                raise UsageError("the chats have a passphrase", hint="gptoss passphrase change")
            self._wrap(key_id, key, passphrase)
            self._take(key_id, key)
            self._execute(DROP_SEARCH)
            self._rewrite("sealed")

    def change(self, old: str, new: str) -> None:
        """Encrypt the key with another passphrase."""
        with translated(self._path), transaction(self._database):
            key = self._unwrap(old)
            self._wrap(self._kept_id() or b"", key, new)

    def remove(self, passphrase: str) -> None:
        """Decrypt all texts, and make the search's index again."""
        with self._rewriting():
            self._unwrap(passphrase)
            self._rewrite("opened")
            self._execute(("DELETE FROM passphrase", *SEARCH))
            for table in ("turn_words", "chat_words"):
                self._database.execute(f"INSERT INTO {table}({table}) VALUES ('rebuild')")

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        with translated(self._path):
            with transaction(self._database):
                owner.stop_orphans(self._database)
                found = self._database.execute("SELECT 1 FROM turn WHERE state = 'streaming'")
                if found.fetchone():
                    hint = "Wait for it, or stop it."
                    raise AnsweringError("an answer is being written", hint=hint)
                yield
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _kept_id(self) -> bytes | None:
        row = self._database.execute("SELECT key_id FROM passphrase").fetchone()
        return None if row is None else row[0]

    def _take(self, key_id: bytes, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._key_id, self._cipher = key_id, AESGCM(key)

    def _wrap(self, key_id: bytes, key: bytes, passphrase: str) -> None:
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(_NONCE_BYTES)
        wrapped = nonce + _derived(passphrase, salt, _N, _R, _P).encrypt(nonce, key, key_id)
        self._database.execute(
            "REPLACE INTO passphrase(id, key_id, salt, n, r, p, wrapped) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (key_id, salt, _N, _R, _P, wrapped),
        )

    def _rewrite(self, function: str) -> None:
        for table, names in _TEXTS.items():
            columns = ", ".join(f"{name} = {function}({name})" for name in names)
            self._database.execute(f"UPDATE {table} SET {columns}")

    def _execute(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            self._database.execute(statement)

    def _seal(self, text: str) -> str:
        if self._cipher is None:
            return text
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = nonce + self._cipher.encrypt(nonce, text.encode(), None)
        return _SEALED + base64.b64encode(data).decode()

    def _open(self, text: str) -> str:
        if self._cipher is None or not text.startswith(_SEALED):
            return text
        data = base64.b64decode(text[1:])
        return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None).decode()


def _derived(passphrase: str, salt: bytes, n: int, r: int, p: int) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if not passphrase:
        raise UsageError("the passphrase is empty")
    words = unicodedata.normalize("NFC", passphrase).encode()
    memory = 2 * 128 * n * r
    return AESGCM(hashlib.scrypt(words, salt=salt, n=n, r=r, p=p, maxmem=memory, dklen=32))
