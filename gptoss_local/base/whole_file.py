"""Read and change files that people may edit; a change is written whole or not at all."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gptoss_local.base.errors import PathNotFoundError, UsageError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

PRIVATE = partial(os.open, mode=0o600)
_BUSY_S = 2.0


def replace(source: Path, target: Path) -> None:
    """Rename a file over another one.

    Windows refuses while a program, such as a virus scanner, has that one open, so try for a while.
    """
    until_s = time.monotonic() + _BUSY_S
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() > until_s:
                raise
            time.sleep(0.02)


def read_text(path: Path, *, hint: str = "") -> str:
    """Return a file's text with its line ends, without a byte order mark."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise PathNotFoundError(f"there is no file {path}", hint=hint) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file") from error


def open_private(path: Path) -> BinaryIO:
    """Open a file to append, which only its user may read; its folder is made, too."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = PRIVATE(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if os.name == "posix":
        os.fchmod(descriptor, 0o600)  # one of an older version may be readable for all
    return os.fdopen(descriptor, "ab")


def write_whole(
    path: Path,
    text: str | bytes,
    *,
    check: Callable[[Path], object] = lambda _: None,
    mode: int = 0o600,
) -> None:
    """Replace the text of a file, which keeps its mode and stays a link if it is one.

    Its folder is made if missing; a new file has `mode`, by which only its user may read it.
    `check` sees the new file before it replaces the old one, and may raise.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            written = Path(folder) / target.name
            written.touch(mode=mode)
            written.write_bytes(text.encode() if isinstance(text, str) else text)
            try:
                check(written)
            except UsageError as error:
                message = error.message.replace(str(written), str(path))
                raise UsageError(message, hint=error.hint) from error
            if target.exists():
                shutil.copymode(target, written)
            replace(written, target)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def change_toml(
    path: Path,
    change: "Callable[[TOMLDocument], None]",
    check: Callable[[Path], object],
    *,
    header: str = "",
) -> None:
    """Change a TOML file, keeping comments and order.

    `check` raises UsageError if the file is wrong, before or after the change. A new file begins
    with `header` as a comment.
    """
    import tomlkit  # PERF: 60 ms; to read takes none

    if path.exists():
        check(path)
    text = read_text(path) if path.exists() else ""
    document = tomlkit.parse(text)
    if header and not text:
        document.add(tomlkit.comment(header))
        document.add(tomlkit.nl())
    change(document)
    write_whole(path, tomlkit.dumps(document), check=check)
