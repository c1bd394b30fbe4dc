"""The folder that a download fills: its files, complete or not, and which are known to be right.

A file gets its final name when its checksum is the hub's. Until then it lies in
`.gptoss-download/`, next to `state.json`, which lists the files and the checked ones.
"""

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
from rich.filesize import decimal

from gptoss_local.base.errors import DownloadError, disk_error
from gptoss_local.base.lock import locked
from gptoss_local.base.whole_file import replace
from gptoss_local.models.hub.listing import HubFile, Listing


def new_digest(file: HubFile) -> "hashlib._Hash":
    if file.checksum.startswith("sha256:"):
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % file.size_bytes)  # git puts a header before the content
    return digest


class PartialFile:
    """Appends to a partial file; all methods may raise OSError. Thread: one at a time."""

    def __init__(self, path: Path, file: HubFile) -> None:
        self.path = path
        self._file = file
        self._digest = new_digest(file)
        self._sink = path.open("ab+", buffering=0)
        if path.is_file():
            self._sink.seek(0)
            hashlib.file_digest(self._sink, lambda: self._digest)
        self.size_bytes = self._sink.tell()

    @property
    def checksum(self) -> str:
        return f"{self._file.checksum.partition(':')[0]}:{self._digest.hexdigest()}"

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:  # unbuffered: a killed process leaves all that it counted
            left = left[self._sink.write(left) :]
        self._digest.update(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        self._sink.close()


_OWN_NAME = ".gptoss-download"
_LOCK_WAIT_S = 0.2


class _Checked(msgspec.Struct, frozen=True):
    checksum: str
    commit: str
    mtime_ns: int


class _State(msgspec.Struct):
    listing: Listing | None = None
    checked: dict[str, _Checked] = {}


class DownloadFolder:
    """One folder for one checkpoint. Thread: everything may be called from many threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._own = root / _OWN_NAME
        self._lock = threading.Lock()
        with disk_errors(root):
            self._own.mkdir(parents=True, exist_ok=True)
            self._state = self._read_state()

    @property
    def listing(self) -> Listing | None:
        return self._state.listing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; the lock ends with this one, however it ends."""
        with contextlib.ExitStack() as stack:
            with disk_errors(self.root):
                try:
                    stack.enter_context(locked(self._own / "lock", timeout_s=_LOCK_WAIT_S))
                except TimeoutError as error:
                    raise DownloadError(
                        f"Another process is downloading into {self.root}.",
                        hint="Wait until it ends, or stop it.",
                    ) from error
            yield

    def begin(self, listing: Listing) -> None:
        with disk_errors(self.root), self._lock:
            self._state.listing = listing
            self._write_state()
            kept = {self.partial(file) for file in listing.files.values()}
            for partial in self._own.glob("*.incomplete"):
                if partial not in kept:
                    partial.unlink()

    def path(self, file: HubFile) -> Path:
        return self.root / file.name

    def partial(self, file: HubFile) -> Path:
        digest = file.checksum.partition(":")[2]
        return self._own / f"{file.name.replace('/', '--')}.{digest[:16]}.incomplete"

    def held_bytes(self, file: HubFile) -> int:
        """Return how many bytes of a file are there, right or not."""
        if (size_bytes := _size_bytes(self.path(file))) == file.size_bytes:
            return size_bytes
        return min(_size_bytes(self.partial(file)), file.size_bytes)

    def missing_bytes(self, files: Iterable[HubFile]) -> int:
        return sum(file.size_bytes - self.held_bytes(file) for file in files)

    @property
    def free_bytes(self) -> int:
        with disk_errors(self.root):
            return shutil.disk_usage(self.root).free

    def check_space(self, n_bytes: int) -> None:
        free_bytes = self.free_bytes
        if free_bytes < n_bytes:
            raise DownloadError(
                f"The disk of {self.root} has {decimal(free_bytes)} free; "
                f"{decimal(n_bytes)} are needed.",
                hint="Free some space, or choose a folder on another disk.",
            )

    def is_right(self, file: HubFile) -> bool:
        """Check the file under its final name, hashing it unless that was done before."""
        path = self.path(file)
        if _size_bytes(path) != file.size_bytes:
            return False
        known = self._state.checked.get(file.name)
        if known and (known.checksum, known.mtime_ns) == (file.checksum, path.stat().st_mtime_ns):
            return True
        if _checksum(path, file) != file.checksum:
            return False
        self._remember(file)
        return True

    def accept(self, file: HubFile, partial: PartialFile) -> bool:
        """Give a complete partial file its final name if it is right, else delete it."""
        partial.close()
        path = self.path(file)
        if partial.checksum != file.checksum:
            partial.path.unlink()
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.path.open("rb+") as written:
            os.fsync(written.fileno())  # a file known to be right must survive a power cut
        replace(partial.path, path)
        self._remember(file)
        return True

    def check_unchanged(self, skipped: Collection[HubFile]) -> None:
        """Raise DownloadError if the hub holds another version of a skipped file."""
        for file in skipped:
            known = self._state.checked.get(file.name)
            if known and known.checksum != file.checksum:
                raise DownloadError(
                    f"{file.name} has changed on the hub since it was downloaded and used.",
                    hint=f"Start over with another target, or add @{known.commit} to the name "
                    "of the repository to finish with the old files.",
                )

    def _remember(self, file: HubFile) -> None:
        with self._lock:
            assert self._state.listing is not None
            mtime_ns = self.path(file).stat().st_mtime_ns
            commit = self._state.listing.commit
            self._state.checked[file.name] = _Checked(file.checksum, commit, mtime_ns)
            self._write_state()

    def _read_state(self) -> _State:
        try:
            return msgspec.json.decode((self._own / "state.json").read_bytes(), type=_State)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return _State()  # all it costs is hashing again

    def _write_state(self) -> None:
        new = self._own / "state.json.new"
        new.write_bytes(msgspec.json.encode(self._state))
        replace(new, self._own / "state.json")


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(
            f"{path} cannot be written: {error.strerror or error}.",
            error,
            hint="Free some space, or choose a folder where you may write, on a disk that takes "
            "files of this size. Then run the same command again: what has arrived is kept.",
        ) from error


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _checksum(path: Path, file: HubFile) -> str:
    digest = new_digest(file)
    with path.open("rb") as content:
        hashlib.file_digest(content, lambda: digest)
    return f"{file.checksum.partition(':')[0]}:{digest.hexdigest()}"
