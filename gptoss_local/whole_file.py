"""Write a file that people may edit: all of it or nothing."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from gptoss_local.errors import UsageError


def write_whole(
    path: Path,
    text: str,
    *,
    is_private: bool = False,
    check: Callable[[Path], object] = lambda _: None,
) -> None:
    """Replace the text of a file, which keeps its mode, and stays a link if it is one.

    Its folder is made if it is not there. With `is_private`, only its user may read a new one.
    `check` is called with the new file before it takes the place of the old one; it may raise.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            written = Path(folder) / target.name
            written.touch(mode=0o600 if is_private else 0o666)
            written.write_text(text, encoding="utf-8", newline="")
            check(written)
            if target.exists():
                shutil.copymode(target, written)
            os.replace(written, target)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
