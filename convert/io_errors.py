"""Translates errors of the operating system into our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gptoss_local.errors import ConvertError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong with reading `path`, or a file in it, into our error."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"Reading {path} failed: {error}.") from error


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what goes wrong with writing `target`, or what belongs to it, into our error."""
    try:
        yield
    except OSError as error:
        raise ConvertError(
            f"Writing {target} failed: {error}.",
            hint="Check free space and permissions of the target folder, then convert again.",
        ) from error
