"""Keep cached prefixes on disk: write them while idle, read them when a prompt needs them.

A file is `_MAGIC`, the length of a head as uint32, its digest, the head as msgpack, and the
sections that the head lists: the whole state, then windows within it.
"""

import contextlib
import logging
import os
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import msgspec
import numpy as np

from gptoss_local.base.errors import EngineError
from gptoss_local.base.private import is_private
from gptoss_local.base.whole_file import replace
from gptoss_local.engine.llama import Context, State, library_version
from gptoss_local.engine.protocol import PrefixOptions
from gptoss_local.engine.worker.cache.prefix_cache import PrefixCache, PrefixCheckpoint
from gptoss_local.engine.worker.cache.slots import Slot, Slots, common_prefix

_log = logging.getLogger("gptoss")

_WORTH_TOKENS = 256  # fewer are prefilled as fast as read, or nearly
_BETWEEN_SAVES_S = 0.2
_N_POINTS = 8  # checkpoints that a file has: the last ones before its end
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


class PrefixStore:
    """The files of one model as one build of the engine makes them, in a folder of their own.

    `key` has everything that must be equal for a state to be valid. `max_bytes` is for the files of
    all keys; the least recently used goes first. Thread: `write` may run in parallel.
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

    def find(self, tokens: "array[int]", n_max: int, salt: bytes) -> tuple[SavedPrefix | None, int]:
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
            PrefixCheckpoint(section.n_tokens, window, section.is_boundary)
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
        salt: bytes,
    ) -> None:
        """Save a prefix, unless it is too large, in place of those within it; may raise OSError."""
        sections = [_section(len(tokens), state, is_boundary=True)]
        sections += [_section(p.n_tokens, p.window, is_boundary=p.is_boundary) for p in points]
        if sum(section.n_bytes for section in sections) > self._max_bytes:
            return
        head = _Head(self._key, salt, tokens.tobytes(), n_asked, sections)
        path = self._folder / f"{_digest(tokens, salt).hex()}{_SUFFIX}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No process id: engines in containers that share the folder may have the same one.
        partial = path.with_suffix(f".{uuid4().hex}{_PARTIAL_SUFFIX}")
        try:
            with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                packed = msgspec.msgpack.encode(head)
                n_bytes = len(packed).to_bytes(_HEAD_LENGTH_BYTES, "little")
                file.write(_MAGIC + n_bytes + _head_digest(packed) + packed)
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


def _head_digest(head: bytes) -> bytes:
    """Return a digest to store, as a changed token would pass for another prefix."""
    return blake2b(head, digest_size=_DIGEST_BYTES).digest()


def _read_head(file: BinaryIO) -> _Head:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin like one")
    n_bytes = int.from_bytes(file.read(_HEAD_LENGTH_BYTES), "little")
    digest, head = file.read(_DIGEST_BYTES), file.read(n_bytes)
    if digest != _head_digest(head):
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


class Archive:
    def __init__(
        self, context: Context, slots: Slots, cache: PrefixCache, options: PrefixOptions
    ) -> None:
        self._idle_s = options.save_after_s
        self._n_done = -1
        self._rest_at_s: float | None = None
        self._context = context
        self._slots = slots
        self._cache = cache
        cache.is_saved = self._is_saved
        key = (
            *(options.model_digest, library_version(), context.cache_type),
            *(context.n_swa, context.n_vocab),
        )
        self._store = PrefixStore(Path(options.folder or ""), repr(key), options.disk_bytes)
        self._history = Path(options.history) if options.history else None
        self._is_private()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self._writing: Future[None] | None = None
        self._is_broken = False
        self._tried: set[bytes] = set()  # digests: too large, or evicted immediately by another

    def fetch(self, tokens: "array[int]", n_matched: int, n_max: int, salt: bytes) -> bool:
        """Bring a prefix of `tokens` into the cache, if that saves much over `n_matched`."""
        saved, n_tokens = self._store.find(tokens, n_max, salt)
        if saved is None or n_tokens < n_matched + _WORTH_TOKENS:
            return False
        n_cells = len(saved.tokens)
        if n_cells > self._slots.n_cells_free + self._slots.n_cells_cached:
            return False
        start_s = time.perf_counter()
        try:
            state, points = self._store.read(saved)
            self._cache.adopt(saved.tokens, state, points, n_asked=saved.n_asked, salt=salt)
            self._cache.costs.learn_read(n_cells, time.perf_counter() - start_s)
        except EngineError as error:
            _log.warning("a saved prefix is not used, and removed: %s", error.message)
            self._store.remove(saved)
            return False
        return True

    def wait_s(self, n_done: int) -> float | None:
        """Return the idle seconds before `rest`; None: never. `n_done` grows with all work."""
        if n_done != self._n_done:
            self._n_done, self._rest_at_s = n_done, time.monotonic() + self._idle_s
        return None if self._rest_at_s is None else max(0.0, self._rest_at_s - time.monotonic())

    def rest(self) -> None:
        wait_s = _BETWEEN_SAVES_S if self.save_one() else self._make_way()
        self._rest_at_s = None if wait_s is None else time.monotonic() + wait_s

    def save_one(self, *, is_last: bool = False) -> bool:
        """Start to write the most recently used unsaved prefix; return False without one.

        Copies the state immediately (0.1 s for 30k tokens of gpt-oss-20b); a thread writes it.
        Skips prefixes that are saved but for an eighth, unless this `is_last`, as the process ends.
        """
        if self._writing is not None and not self._writing.done():
            return True
        for slot in reversed(self._slots.cached):
            if not self._is_broken and self._is_worth(slot, is_last=is_last):
                if self._is_private():
                    slot.in_memory = True
                    continue
                tokens, salt = slot.tokens[:], slot.salt
                self._tried.add(_digest(tokens, salt))
                points = self._cache.checkpoints.along(tokens, len(tokens) - 1, salt)[-_N_POINTS:]
                try:
                    state = self._context.save(slot.index)
                except EngineError as error:
                    _log.warning("a prefix is not saved: %s", error.message)
                    continue
                write = partial(self._store.write, tokens, slot.n_asked, state, points, salt)
                self._writing = self._writer.submit(self._write, write)
                self._writing.add_done_callback(self._report)
                return True
        return False

    def _write(self, write: Callable[[], None]) -> None:
        write()
        self._is_private()  # a passphrase may have been set meanwhile

    def _is_private(self) -> bool:
        if self._history is None or not is_private(self._history):
            return False
        self._store.clear()
        return True

    def _make_way(self) -> float | None:
        """Evict what should leave; move the others to the first cells once as many have left.

        PERF: masks and attention cover all cells up to the last used one: with 114,688 cells of
        other sequences, 20b on an H200 takes 4.3 ms for a token, with none 3.2.
        """
        wait_s = self._cache.make_way()
        if self._cache.n_left >= self._slots.n_cells_cached:
            self._cache.n_left = 0
            for slot in self._slots.cached:
                try:
                    self._slots.move(slot)
                except EngineError as error:
                    _log.warning("a prefix is lost: %s", error.message)
        return wait_s

    def close(self) -> None:
        while self.save_one(is_last=True):
            if self._writing is not None:
                self._writing.exception()  # waits
        self._writer.shutdown()

    def _is_worth(self, slot: Slot, *, is_last: bool) -> bool:
        n_tokens = len(slot.tokens)
        is_short = n_tokens < _WORTH_TOKENS
        if slot.in_memory or is_short or not self._slots.is_live(slot, n_tokens):
            return False
        if _digest(slot.tokens, slot.salt) in self._tried:
            return False
        n_new = n_tokens - self._store.n_saved(slot.tokens, slot.salt)
        return n_new >= (1 if is_last else _worth_writing(n_tokens))

    def _is_saved(self, slot: Slot) -> bool:
        n_tokens = len(slot.tokens)
        saved, n_saved = self._store.find(slot.tokens, n_tokens, slot.salt)
        is_there = saved is not None and saved.path.exists()  # others may have removed it
        return is_there and n_tokens - n_saved < _worth_writing(n_tokens)

    def _report(self, writing: Future[None]) -> None:
        if error := writing.exception():
            self._is_broken = True
            _log.warning("prefixes are not saved any more: %s", error)


def _worth_writing(n_tokens: int) -> int:
    return max(_WORTH_TOKENS // 4, n_tokens // 8)


def _digest(tokens: "array[int]", salt: bytes) -> bytes:
    return blake2b(tokens, digest_size=16, salt=salt).digest()
