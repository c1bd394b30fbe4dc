"""A partial download, and the checksum of its bytes so far, so that nothing is read twice."""

import hashlib
from pathlib import Path

from gptoss_local.models.hub.listing import HubFile

_PIECE_BYTES = 1 << 20


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
            while piece := self._sink.read(_PIECE_BYTES):
                self._digest.update(piece)
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

    def clear(self) -> None:
        self._sink.truncate(0)
        self._digest = new_digest(self._file)
        self.size_bytes = 0

    def close(self) -> None:
        self._sink.close()
