"""Locks between processes, each made here, as some file systems have none.

NFS without lockd, SMB, 9p and FUSE may lack flock. There a marker file takes its place, which
filelock removes when its process is gone from this machine.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_NO_FLOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float, poll_s: float = 0.05) -> Iterator[None]:
    """Keep other processes out; not reentrant. TimeoutError: one has it; OSError: no lock."""
    # PERF: 60 ms to import, and most commands change nothing.
    from filelock import FileLock

    lock = FileLock(path, timeout=timeout_s, poll_interval=poll_s, fallback_to_soft=False)
    release: Callable[[], object] = lock.release
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        release = _mark(path, timeout_s, poll_s)
    try:
        yield
    finally:
        release()


def lock_open_file(file: IO[bytes], path: Path) -> Callable[[], object]:
    """Lock an open file until it is closed; then call the result. TimeoutError: one has it."""
    from filelock import lock_descriptor

    try:
        if not lock_descriptor(file.fileno(), blocking=False):
            raise TimeoutError
        return lambda: None
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        return _mark(path, 0, 0.05)


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


def _mark(path: Path, timeout_s: float, poll_s: float) -> Callable[[], object]:
    from filelock import SoftFileLock

    marker = path.with_name(f"{path.name}.held")  # flock's file may be there, and would stay
    lock = SoftFileLock(marker, timeout=timeout_s, poll_interval=poll_s, thread_local=False)
    lock.acquire()
    return lock.release
