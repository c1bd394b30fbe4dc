"""Changes of the store: each is whole or has not happened, also if the process dies.

A name is a hard link to its file, so copies cost nothing, and a model stays as long as one of its
names does. Where the file system has no hard links, bytes are copied.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from gptoss_local.errors import ModelLoadError, UsageError
from gptoss_local.gguf_file import read_info
from gptoss_local.settings import Settings
from gptoss_local.store.blobs import disk_errors, remove_unused
from gptoss_local.store.models import SUFFIX, ModelEntry, file_for, find_model

_ARCHITECTURES = ("gpt-oss", "gptoss")


def add_model(name: str, source: Path, settings: Settings) -> None:
    """Give a GGUF file a name; one that had the name before loses it.

    Raises:
        UsageError: the name is invalid, or the file is no GGUF of gpt-oss.
        DownloadError: the folder cannot be written.
    """
    target = file_for(name, settings)
    try:
        info = read_info(source)
    except ModelLoadError as error:
        raise UsageError("supplied file was not in GGUF format") from error
    if info.architecture not in _ARCHITECTURES:
        raise UsageError(f"gptoss runs gpt-oss only, and the file is of '{info.architecture}'")
    _place(target, lambda part: _link_or_copy(source, part))


def delete_model(name: str, settings: Settings) -> None:
    """Remove a name, and its file with the last of its names.

    Raises:
        UsageError: the name is invalid, or belongs to the embedded model.
        ModelNotFoundError: there is no such model.
    """
    file_for(name, settings)  # refuses the embedded model
    path = find_model(name, settings).path
    if path is None:
        raise RuntimeError("only the embedded model has no file")
    with disk_errors():
        path.unlink(missing_ok=True)
    remove_unused(settings.models_dir / "blobs")


def adopt_file(file: Path, settings: Settings) -> ModelEntry:
    """Make a model of a file where it lies, under its own name; the file stays untouched.

    Raises:
        UsageError: a model of that name is another file.
        DownloadError: the folder cannot be written.
    """
    name = re.sub(r"[^a-z0-9_.-]", "-", file.stem.lower()).lstrip(".-")[:80] or "model"
    target = file_for(name, settings)
    if not target.exists():
        _place(target, lambda part: _refer(file.resolve(), part))
    elif not target.samefile(file):
        raise UsageError(
            f"there is another model '{name}' already: {target}",
            hint="Rename one of the files.",
        )
    return find_model(name, settings)


def _place(target: Path, make: Callable[[Path], None]) -> None:
    """Make a file under a name of its own, then rename it."""
    part = target.with_name(f"{target.name.removesuffix(SUFFIX)}.{secrets.token_hex(4)}.part")
    with disk_errors():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            make(part)
            part.replace(target)
        finally:
            # A rename of one link onto another of the same file does nothing and leaves both.
            part.unlink(missing_ok=True)


def _link_or_copy(source: Path, part: Path) -> None:
    try:
        os.link(source.resolve(), part)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, part)


def _refer(source: Path, part: Path) -> None:
    try:
        part.symlink_to(source)
    except OSError:  # Windows wants a privilege for it
        os.link(source, part)
