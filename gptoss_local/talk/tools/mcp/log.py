"""The log of one MCP server: its stderr, bounded and without secrets."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from gptoss_local.talk.tools.mcp.config import HIDDEN

_ROTATE_BYTES = 2**20
_MAX_BYTES = 4 * 2**20  # of one start
_LINE_BYTES = 64 * 1024
_LAST_CHARACTERS = 300
_LAST_S = 5.0


class ServerLog:
    """Appends to `mcp-NAME.log`, which is replaced when it has more than 1 MiB.

    Args:
        secrets: Words to hide, the longest first.

    Thread: any; each line is written under a lock.
    """

    def __init__(self, folder: Path, name: str, secrets: Iterable[str]) -> None:
        self.path = log_path(folder, name)
        self._last, self._last_s = "", 0.0
        self._secrets = tuple(secrets)
        self._lock = threading.Lock()
        self._n_left = _MAX_BYTES
        with contextlib.suppress(OSError):  # servers work without a log, too
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.stat().st_size > _ROTATE_BYTES:
                self.path.replace(self.path.with_suffix(".old"))

    @property
    def last_words(self) -> str:
        """Return the line of the last seconds, often why a server ended; empty if there is none."""
        return self._last if time.monotonic() - self._last_s < _LAST_S else ""

    def hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def write(self, line: str) -> None:
        """Add a line. Past the limit of one start, all but a line that says so is dropped."""
        with self._lock:
            if self._n_left <= 0:
                return
            clean = self.hide(line.rstrip())
            if clean.strip():
                self._last, self._last_s = clean.strip()[-_LAST_CHARACTERS:], time.monotonic()
            data = f"{clean}\n".encode(errors="replace")
            self._n_left -= len(data)
            if self._n_left <= 0:
                data += b"(it wrote more, which is not kept)\n"
            with contextlib.suppress(OSError), self.path.open("ab") as file:
                file.write(data)

    def copy(self, fd: int) -> None:
        """Write all lines of a pipe until its end, and close it; blocks."""
        with os.fdopen(fd, "rb") as pipe:
            while self._n_left > 0 and (line := pipe.readline(_LINE_BYTES)):
                self.write(line.decode("utf-8", "replace"))
            while pipe.read1(_MAX_BYTES):  # otherwise the server would block
                pass


def log_path(folder: Path, name: str) -> Path:
    return folder / f"mcp-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64]}.log"
