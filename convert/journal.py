"""Records, next to a partial file, how much of a conversion is already safe on disk.

One JSON object per line, appended only after its data has been synced; an incomplete line is
ignored. The open journal is locked, so that one target has one writer.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import msgspec

from convert.files import SourceTensor
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.lock import lock_open_file


class Shard(msgspec.Struct, frozen=True):
    """One safetensors file of the source folder, as it was when its header was read."""

    name: str
    n_bytes: int
    mtime_ns: int
    tensors: dict[str, SourceTensor]


class _PlanLine(msgspec.Struct, frozen=True, tag="plan"):
    source: str
    fingerprint: str
    partials: list[str]


class _ShardLine(msgspec.Struct, frozen=True, tag="shard"):
    name: str
    n_bytes: int
    mtime_ns: int
    tensors: dict[str, tuple[str, tuple[int, ...], int, int]]
    made: list[str]


class _SumLine(msgspec.Struct, frozen=True, tag="sum"):
    tensor: str
    value: int


class _CompleteLine(msgspec.Struct, frozen=True, tag="complete"):
    pass


_Line = _PlanLine | _ShardLine | _SumLine | _CompleteLine


@dataclass
class JournalState:
    """The contents of a journal; without a fingerprint nothing can be continued."""

    source: Path = Path()
    fingerprint: str = ""
    partials: list[str] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False
    n_bytes: int = 0
    lines: dict[str, _ShardLine] = field(default_factory=dict)

    def shards(self, source: Path) -> dict[str, Shard]:
        found = {}
        for name, line in self.lines.items():
            tensors = {
                tensor: SourceTensor(dtype, shape, source / name, offset, n_bytes)
                for tensor, (dtype, shape, offset, n_bytes) in line.tensors.items()
            }
            found[name] = Shard(name, line.n_bytes, line.mtime_ns, tensors)
        return found

    def finished_shards(self) -> set[str]:
        shards = self.lines.values()
        return {line.name for line in shards if self.sums.keys() >= set(line.made)}

    def gone_shards(self) -> set[str]:
        return {name for name in self.lines if not (self.source / name).exists()}

    def apply(self, line: _Line) -> None:
        match line:
            case _PlanLine():
                self.source = Path(line.source)
                self.fingerprint, self.partials = line.fingerprint, line.partials
            case _ShardLine():
                self.lines[line.name] = line
                for name in line.made:  # data of an earlier file of this name is void
                    self.sums.pop(name, None)
                self.is_complete = False
            case _SumLine():
                self.sums[line.tensor] = line.value
            case _CompleteLine():
                self.is_complete = True


def journal_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.journal")


def read_journal(source: Path, target: Path) -> JournalState:
    """Read the journal of an interrupted conversion of `source` to `target`, without locking it."""
    try:
        state = _parse(journal_path(target).read_bytes())
    except (FileNotFoundError, PermissionError):  # Windows denies it while a process writes it
        return JournalState()
    return state if state.source == source.resolve() else JournalState()


def _parse(data: bytes) -> JournalState:
    state = JournalState()
    for line in data.splitlines(keepends=True):
        try:
            fields = msgspec.json.decode(line, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        if not line.endswith(b"\n") or isinstance(fields, _PlanLine) == bool(state.fingerprint):
            break
        state.apply(fields)
        state.n_bytes += len(line)
    return state


class Journal:
    """The journal of one target, locked until `close`. Thread: several may add lines."""

    def __init__(self, target: Path) -> None:
        self.path = journal_path(target)
        self._file, self._unlock = _open_locked(self.path, target)
        self._lock = threading.Lock()
        self._file.seek(0)
        self.state = _parse(self._file.read())

    def begin(self, source: Path, fingerprint: str, partials: Sequence[str]) -> None:
        self.state = JournalState()
        line = _PlanLine(str(source.resolve()), fingerprint, list(partials))
        self._append([line])

    def add_shard(self, shard: Shard, made: Sequence[str]) -> None:
        """Record a new shard and the tensors made from it; another of its name is void."""
        tensors = {n: (t.dtype, t.shape, t.offset, t.n_bytes) for n, t in shard.tensors.items()}
        line = _ShardLine(shard.name, shard.n_bytes, shard.mtime_ns, tensors, sorted(made))
        if self.state.lines.get(shard.name) != line:
            self._append([line])

    def add_sums(self, sums: Iterable[tuple[str, int]]) -> None:
        self._append([_SumLine(name, value) for name, value in sums])

    def set_complete(self) -> None:
        self._append([_CompleteLine()])
        self.sync()

    def finished_shards(self) -> set[str]:
        """Return `JournalState.finished_shards`, safely while other threads add lines."""
        with self._lock:
            return self.state.finished_shards()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self, *, remove: bool = False) -> None:
        """Unlock the journal, and delete it with `remove`, or if it has no plan."""
        remove = remove or not self.state.fingerprint
        if remove and sys.platform != "win32":  # while it is locked, where an open file can go
            self.path.unlink(missing_ok=True)
        self._file.close()
        self._unlock()
        if remove and sys.platform == "win32":
            with contextlib.suppress(PermissionError):  # another process has just opened it
                self.path.unlink(missing_ok=True)

    def _append(self, lines: Sequence[_Line]) -> None:
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with self._lock:
            # A line cut off by a crash or a full disk, or an old journal, ends here.
            self._file.truncate(self.state.n_bytes)
            n_written = self._file.write(data)
            if n_written < len(data):
                raise OSError(28, "No space left on device", str(self.path))
            for line in lines:
                self.state.apply(line)
            self.state.n_bytes += len(data)


def _open_locked(path: Path, target: Path) -> tuple[FileIO, Callable[[], object]]:
    while True:
        file = path.open("ab+", buffering=0)
        try:
            unlock = lock_open_file(file, path)
        except TimeoutError as error:
            file.close()
            raise ConvertError(
                f"Another gptoss is converting to {target} at this moment.",
                hint="Wait for it, or name another file.",
            ) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file, unlock
        file.close()  # its holder removed the file in the meantime
        unlock()
