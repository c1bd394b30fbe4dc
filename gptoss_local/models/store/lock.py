"""Locks of the store: one process at a time changes names, and no other removes its files."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gptoss_local.base.settings import Settings

_TIMEOUT_S = 30.0  # a change holds it for renames and removals, not while bytes are copied


@contextlib.contextmanager
def changing(settings: Settings, *, timeout_s: float = _TIMEOUT_S) -> Iterator[None]:
    """Keep all other changes of names out; not reentrant. OSError: there is none to be had.

    A change renames one file of a name and removes the other kind, so a lookup in between might
    find neither, and two changes might remove each other's file.
    """
    # PERF: 60 ms to import, and most commands change nothing.
    from filelock import FileLock

    with FileLock(settings.cache_dir / "models.lock", timeout=timeout_s, poll_interval=0.005):
        yield


def hold(file: IO[bytes]) -> None:
    """Keep others from taking a file for a leftover until it is closed, or this process ends."""
    from filelock import lock_descriptor

    with contextlib.suppress(OSError):  # no locks here: then nothing is taken for a leftover
        lock_descriptor(file.fileno(), blocking=False)


def is_held(path: Path) -> bool:
    """Return whether a living process holds a file, or one in a folder; True in doubt."""
    from filelock import lock_descriptor

    for each in (path, *path.rglob("*")):
        try:
            if each.is_file():  # a pipe would be waited for
                with each.open("rb") as file:
                    if not lock_descriptor(file.fileno(), blocking=False):
                        return True
        except FileNotFoundError:  # another process has removed it
            pass
        except OSError:
            return True
    return False
