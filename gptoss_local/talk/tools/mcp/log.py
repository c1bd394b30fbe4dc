"""The log of one MCP server: its stderr, bounded and without secrets."""

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path

from gptoss_local.base.whole_file import open_private
from gptoss_local.talk.tools.mcp.config import HIDDEN

_ROTATE_BYTES = 2**20
_MAX_BYTES = 4 * 2**20  # of one start
_LAST_CHARACTERS = 300
_LAST_S = 5.0


class ServerLog:
    """Appends to `mcp-NAME.log`, which is replaced at 1 MiB, and hides `secrets`, longest first."""

    def __init__(self, folder: Path, name: str, secrets: Iterable[str]) -> None:
        self.path = log_path(folder, name)
        self._last, self._last_s = "", 0.0
        self._secrets = tuple(secrets)
        self._n_left = _MAX_BYTES
        with contextlib.suppress(OSError):  # servers work without a log, too
            if self.path.stat().st_size > _ROTATE_BYTES:
                self.path.replace(self.path.with_suffix(".old"))

    @property
    def last_words(self) -> str:
        """Return the last line if recent, often why a server ended; else empty."""
        return self._last if time.monotonic() - self._last_s < _LAST_S else ""

    @property
    def is_open(self) -> bool:
        return self._n_left > 0

    def hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def write(self, line: str) -> None:
        """Add a line. Past the limit of one start, only a note of that is added."""
        if not self.is_open:
            return
        clean = self.hide(line.rstrip())
        if clean.strip():
            self._last, self._last_s = clean.strip()[-_LAST_CHARACTERS:], time.monotonic()
        data = f"{clean}\n".encode(errors="replace")
        self._n_left -= len(data)
        if not self.is_open:
            data += b"(it wrote more, which is not kept)\n"
        with contextlib.suppress(OSError), open_private(self.path) as file:
            file.write(data)


def log_path(folder: Path, name: str) -> Path:
    return folder / f"mcp-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64]}.log"
