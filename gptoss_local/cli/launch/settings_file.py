"""A program's settings file: what would change in it, and the change made without loss."""

import contextlib
import difflib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptoss_local.cli.launch.merge import Format, merge
from gptoss_local.errors import UsageError


@dataclass(frozen=True)
class SettingsFile:
    """A file and what must be in it, as `merge` takes it."""

    path: Path
    wanted: Mapping[str, Any]

    @property
    def form(self) -> Format:
        return "yaml" if self.path.suffix in (".yaml", ".yml") else "json"


@dataclass(frozen=True)
class Change:
    """A file's bytes, and what they would become. `before` is None if there is no file."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """Return the lines that differ, with some around them, as `diff -u` shows them."""
        before, after = (data.decode().splitlines() for data in (self.before or b"", self.after))
        name = str(self.path)
        lines = difflib.unified_diff(before, after, name, name, lineterm="", n=2)
        return "\n".join(lines)


def read_change(file: SettingsFile) -> Change:
    """Read a file and put what is wanted into its text.

    Raises:
        UsageError: it cannot be read as what it should be.
        OSError: as the system says.
    """
    try:
        before = file.path.read_bytes()
    except FileNotFoundError:
        before = None
    try:
        text = (before or b"").decode("utf-8")
        mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
        is_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        after = merge(text.replace("\r\n", "\n") if is_crlf else text, file.wanted, file.form)
    except (UsageError, UnicodeDecodeError) as error:
        said = error.message if isinstance(error, UsageError) else "it is not UTF-8"
        raise UsageError(
            f"cannot change {file.path}: {said}",
            hint="Nothing was changed. Correct the file, or move it out of the way.",
        ) from error
    return Change(file.path, before, (mark + _lines(after, crlf=is_crlf)).encode())


def _lines(text: str, *, crlf: bool) -> str:
    return text.replace("\n", "\r\n") if crlf else text


def make_change(change: Change) -> Path | None:
    """Write a file whole or not at all; returns its backup, if there was a file.

    A link stays a link: what it points to is changed. The file keeps its mode; a new one can be
    read by its owner only.

    Raises:
        UsageError: another program has changed the file in the meantime.
        OSError: as the system says.
    """
    path = Path(os.path.realpath(change.path))
    path.parent.mkdir(parents=True, exist_ok=True)
    now = path.read_bytes() if path.exists() else None
    if now != change.before:
        raise UsageError(f"{path} has just been changed by another program", hint="Try again.")
    backup = _back_up(path) if now is not None else None
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        try:
            part.write(change.after)
            part.close()
            if now is not None:
                shutil.copymode(path, part.name)
            os.replace(part.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part.name)
            raise
    return backup


def _back_up(path: Path) -> Path:
    """Copy a file to a name that says when; an older backup is never overwritten."""
    base = f"{path.name}.{time.strftime('%Y-%m-%dT%H-%M-%S')}"
    backup, n = path.with_name(f"{base}.bak"), 1
    while backup.exists():
        backup, n = path.with_name(f"{base}-{n}.bak"), n + 1
    shutil.copy2(path, backup)
    return backup
