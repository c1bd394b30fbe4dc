"""Says whether chats have a passphrase; while they do, their text is written nowhere else."""

import contextlib
import sqlite3
from pathlib import Path


def is_private(history_path: Path) -> bool:
    """Return whether chats have a passphrase, or are in a file that cannot be read."""
    if not history_path.exists():
        return False
    uri = f"{history_path.absolute().as_uri()}?mode=rw"  # read-only would leave a -shm file
    try:
        with contextlib.closing(sqlite3.connect(uri, timeout=5.0, uri=True)) as database:
            tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'passphrase'"
            if database.execute(tables).fetchone() == (0,):  # of an earlier version
                return False
            return bool(database.execute("SELECT 1 FROM passphrase").fetchone())
    except sqlite3.Error:
        return True
