"""Store prefixes on disk: the tokens and the state of a sequence, one file each, owner-only.

A file is `_MAGIC`, the length of a head as uint32, its digest, the head as msgpack, and the
sections that the head lists: the whole state, then windows within it.
"""

import contextlib
import logging
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import msgspec
import numpy as np

from gptoss_local.base.errors import EngineError
from gptoss_local.base.whole_file import replace
from gptoss_local.engine.llama import Context, State, library_version
from gptoss_local.engine.protocol import PrefixOptions
from gptoss_local.engine.worker.cache.checkpoints import PrefixCheckpoint
from gptoss_local.engine.worker.cache.slots import common_prefix

_log = logging.getLogger("gptoss")
_MAGIC = b"gptoss prefix 3\n"
_HEAD_LENGTH_BYTES = 4
_DIGEST_BYTES = 16
_SUFFIX, _PARTIAL_SUFFIX = ".prefix", ".partial"


class _Section(msgspec.Struct, frozen=True):
    n_tokens: int
    n_bytes: int
    checksum: int
    is_boundary: bool


class _Head(msgspec.Struct, frozen=True):
    key: str
    salt: bytes
    tokens: bytes
    n_asked: int
    sections: list[_Section]


@dataclass(frozen=True, slots=True)
class SavedPrefix:
    """The head of a file; `points` are the lengths at which it can be continued."""

    path: Path
    salt: bytes
    tokens: "array[int]"
    n_asked: int
    points: tuple[int, ...]


def open_store(options: PrefixOptions, context: Context) -> "PrefixStore | None":
    if options.folder is None or options.disk_bytes == 0:
        return None
    key = (
        options.model_digest,
        library_version(),
        context.cache_type,
        context.n_swa,
        context.n_vocab,
    )
    return PrefixStore(Path(options.folder), repr(key), options.disk_bytes)


class PrefixStore:
    """The files of one model as one build of the engine makes them, in a folder of their own.

    `key` has everything that must be equal for a state to be valid. `max_bytes` is for the files of
    all keys in `folder`; the least recently used goes first. Thread: `write` may run in parallel.
    """

    def __init__(self, folder: Path, key: str, max_bytes: int) -> None:
        self._root = folder
        digest = blake2b(_MAGIC + key.encode(), digest_size=8)  # each version has its own folder
        self._folder = folder / digest.hexdigest()
        self._key = key
        self._max_bytes = max_bytes
        self._saved: list[SavedPrefix] = []
        for path in self._folder.glob("*"):
            self._scan(path)

    def n_saved(self, tokens: "array[int]", salt: bytes) -> int:
        """Return how many tokens the best file has, from the start."""
        return max((common_prefix(s.tokens, tokens) for s in self._of(salt)), default=0)

    def find(
        self, tokens: "array[int]", n_max: int, salt: bytes = b""
    ) -> tuple[SavedPrefix | None, int]:
        """Return the file that saves the prefill of most of `tokens`, and of how many."""
        best: tuple[SavedPrefix | None, int] = (None, 0)
        for saved in self._of(salt):
            n_common = min(common_prefix(saved.tokens, tokens), n_max)
            n_tokens = max((n for n in saved.points if n <= n_common), default=0)
            if n_tokens > best[1]:
                best = (saved, n_tokens)
        return best

    def read(self, saved: SavedPrefix) -> tuple[State, list[PrefixCheckpoint]]:
        """Read state and checkpoints; raise EngineError if the file is gone or damaged."""
        try:
            with saved.path.open("rb") as file:
                head = _read_head(file)
                states = [_read_section(file, section) for section in head.sections]
            os.utime(saved.path)
        except (OSError, ValueError, MemoryError) as error:
            raise EngineError(f"{saved.path} cannot be read: {error}") from error
        points = [
            PrefixCheckpoint(section.n_tokens, window, section.is_boundary, 0)
            for section, window in zip(head.sections[1:], states[1:], strict=True)
        ]
        return states[0], points

    def remove(self, saved: SavedPrefix) -> None:
        self._saved = [s for s in self._saved if s is not saved]
        _unlink(saved.path)

    def clear(self) -> None:
        self._saved = []
        for path in self._root.glob("*/*"):
            _unlink(path)

    def write(
        self,
        tokens: "array[int]",
        n_asked: int,
        state: State,
        points: Sequence[PrefixCheckpoint],
        salt: bytes = b"",
    ) -> None:
        """Save a prefix, unless it is too large, in place of those within it; may raise OSError."""
        sections = [_section(len(tokens), state, is_boundary=True)]
        sections += [_section(p.n_tokens, p.window, is_boundary=p.is_boundary) for p in points]
        if sum(section.n_bytes for section in sections) > self._max_bytes:
            return
        head = _Head(self._key, salt, tokens.tobytes(), n_asked, sections)
        name = blake2b(tokens, digest_size=16, salt=salt).hexdigest()
        path = self._folder / f"{name}{_SUFFIX}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No process id: engines in containers that share the folder may have the same one.
        partial = path.with_suffix(f".{uuid4().hex}{_PARTIAL_SUFFIX}")
        try:
            with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_MAGIC + _framed(msgspec.msgpack.encode(head)))
                for blob in (state, *(point.window for point in points)):
                    blob.tofile(file)
            replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        own = self._of(salt)
        contained = [s for s in own if common_prefix(s.tokens, tokens) == len(s.tokens)]
        self._saved = [saved for saved in self._saved if saved not in contained]
        for saved in contained:
            if saved.path != path:
                _unlink(saved.path)
        lengths = tuple(section.n_tokens for section in sections)
        self._saved.append(SavedPrefix(path, salt, tokens, n_asked, lengths))
        self._make_room()

    def _of(self, salt: bytes) -> list[SavedPrefix]:
        return [saved for saved in self._saved if saved.salt == salt]

    def _scan(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                head = _read_head(file)
                n_bytes = file.tell() + sum(section.n_bytes for section in head.sections)
            if head.key != self._key or path.stat().st_size != n_bytes:
                raise ValueError("it has another length, or is of another model")
            tokens = array("i", head.tokens)
        except (OSError, ValueError) as error:
            _log.warning("removed %s, which is not a saved prefix: %s", path, error)
            _unlink(path)
            return
        points = tuple(section.n_tokens for section in head.sections)
        self._saved.append(SavedPrefix(path, head.salt, tokens, head.n_asked, points))

    def _make_room(self) -> None:
        files = []
        for path in self._root.glob(f"*/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process may have removed it
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path))
        n_bytes = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if n_bytes <= self._max_bytes:
                break
            _unlink(path)
            n_bytes -= size
            self._saved = [saved for saved in self._saved if saved.path != path]


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process may have been faster
        path.unlink()


def _section(n_tokens: int, state: State, *, is_boundary: bool) -> _Section:
    return _Section(n_tokens, state.nbytes, _checksum(state), is_boundary)


def _framed(head: bytes) -> bytes:
    """Prepend length and digest, as a changed token would pass for another prefix."""
    return len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + _digest(head) + head


def _digest(head: bytes) -> bytes:
    return blake2b(head, digest_size=_DIGEST_BYTES).digest()


def _read_head(file: BinaryIO) -> _Head:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin like one")
    n_bytes = int.from_bytes(file.read(_HEAD_LENGTH_BYTES), "little")
    digest, head = file.read(_DIGEST_BYTES), file.read(n_bytes)
    if digest != _digest(head):
        raise ValueError("its head is cut off or changed")
    return msgspec.msgpack.decode(head, type=_Head)


def _read_section(file: BinaryIO, section: _Section) -> State:
    state = np.fromfile(file, np.uint8, section.n_bytes)
    if state.nbytes != section.n_bytes or _checksum(state) != section.checksum:
        raise ValueError("a part is cut off or changed")
    return state


def _checksum(state: State) -> int:
    """Sum 64-bit words. PERF: 10 GB/s, and states have hundreds of MB."""
    n_words = state.nbytes // 8
    total = int(np.add.reduce(state[: 8 * n_words].view(np.uint64), dtype=np.uint64))
    return total ^ int.from_bytes(state[8 * n_words :].tobytes(), "little")
