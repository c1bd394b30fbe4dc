"""Reads pieces of files, and translates errors of the operating system into our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from gptoss_local.base.errors import ConvertError, in_use


@contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"Reading {path} failed: {error}.") from error


def read_into(file: FileIO, offset: int, view: memoryview) -> bool:
    """Fill a buffer from a place of a file; False if the file ends before that."""
    file.seek(offset)
    while view:
        n_read = file.readinto(view)
        if not n_read:
            return False
        view = view[n_read:]
    return True


@contextmanager
def writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConvertError(
            f"Writing {target} failed: {error}.",
            hint=f"{in_use(error)}Check free space and permissions of the target folder, then "
            "convert again.",
        ) from error
