"""Unsent messages, in a file next to the chats."""

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.whole_file import write_whole
from tui.paste import Composed

_MAX = 20


class _Draft(msgspec.Struct):
    id: str
    message: Composed


class Drafts:
    """Keeps unsent texts in a file that terminals share, unless the chats have a passphrase."""

    def __init__(self, path: Path, is_private: Callable[[], bool]) -> None:
        self._path: Path | None = path
        self._is_private = is_private
        self._id = secrets.token_hex(8)
        self._kept = Composed("")

    def read(self) -> list[Composed]:
        return [draft.message for draft in self._read()]

    def keep(self, message: Composed) -> None:
        """Keep the present text of the input; raise UsageError, once, if that fails."""
        if message != self._kept:
            self._kept = message
            self._write([each for each in self._read() if each.id != self._id])

    def put_aside(self) -> None:
        self._id, self._kept = secrets.token_hex(8), Composed("")

    def forget(self, message: Composed) -> None:
        self._kept = Composed("")
        drafts = self._read()
        left = [d for d in drafts if d.id != self._id and d.message != message]
        if left != drafts:
            self._write(left)

    def _read(self) -> list[_Draft]:
        try:
            return msgspec.json.decode(
                self._path.read_bytes() if self._path else b"[]", type=list[_Draft]
            )
        except (OSError, msgspec.DecodeError):
            return []

    def _write(self, others: list[_Draft]) -> None:
        now = [_Draft(self._id, self._kept)] if self._kept.text else []
        if self._path is None:
            return
        if self._is_private():
            self._path.unlink(missing_ok=True)
            return
        try:
            text = msgspec.json.encode([*others, *now][-_MAX:]).decode()
            write_whole(self._path, text)
        except UsageError:
            self._path = None
            raise
