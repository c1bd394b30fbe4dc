"""Translates errors of the operating system into our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gptoss_local.errors import ConvertError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error of reading `path`, or a file in it, into ours."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"Reading {path} failed: {error}.") from error


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an error of writing `target`, or a file next to it, into ours."""
    try:
        yield
    except OSError as error:
        raise ConvertError(
            f"Writing {target} failed: {error}.",
            hint="Check free space and permissions of the target folder, then convert again.",
        ) from error
