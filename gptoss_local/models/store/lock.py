"""One process at a time changes which names there are.

A change renames one file of a name into place and removes the other kind. A process that looks for
both in between may miss a model that is there all the time, and two changes of one name might each
remove what the other has placed.
"""

import contextlib
from collections.abc import Iterator

from gptoss_local.settings import Settings

_TIMEOUT_S = 30.0  # a change holds it for renames and removals, not while bytes are copied


@contextlib.contextmanager
def changing(settings: Settings, *, timeout_s: float = _TIMEOUT_S) -> Iterator[None]:
    """Keep all other changes of names out; the lock ends with the process, however that ends.

    Not to be entered twice by one thread.

    Raises:
        OSError: the cache folder cannot be written; TimeoutError: another keeps the lock.
    """
    # PERF: 60 ms to import, and most commands change nothing.
    from filelock import FileLock

    with FileLock(settings.cache_dir / "models.lock", timeout=timeout_s, poll_interval=0.005):
        yield
