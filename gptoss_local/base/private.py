"""Says whether chats have a passphrase; if so, their text is written nowhere else."""

import ctypes
import sys
from pathlib import Path

_PR_SET_DUMPABLE = 4  # of linux/prctl.h


def is_private(history_path: Path) -> bool:
    """Return whether chats have a passphrase, without opening their file."""
    return _marker(history_path).exists()


def mark_private(history_path: Path, *, is_private: bool) -> None:
    """Note next to the file of chats whether they have a passphrase."""
    marker = _marker(history_path)
    if is_private:
        marker.touch(mode=0o600)
    else:
        marker.unlink(missing_ok=True)


def _marker(history_path: Path) -> Path:
    return history_path.with_name(f"{history_path.name}.private")


def keep_memory_private() -> None:
    """Prevent core dumps of this process and its children; on Linux also hide it from debuggers."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
