"""Says whether chats have a passphrase; if so, their text is written nowhere else."""

import contextlib
import ctypes
import sys
from pathlib import Path

_PR_SET_DUMPABLE = 4  # of linux/prctl.h


def is_private(history_path: Path) -> bool:
    """Return whether chats have a passphrase, or are in a file that cannot be read."""
    import sqlite3  # PERF: not for commands that only look at the server

    if not history_path.exists():
        return False
    uri = f"{history_path.absolute().as_uri()}?mode=rw"  # read-only would leave a -shm file
    try:
        with contextlib.closing(sqlite3.connect(uri, timeout=5.0, uri=True)) as database:
            return bool(database.execute("SELECT 1 FROM passphrase").fetchone())
    except sqlite3.Error:
        return True


def keep_memory_private() -> None:
    """Prevent core dumps of this process and its children; on Linux also hide it from debuggers."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
