"""Read one file of a path as text, and find images that a text names."""

import asyncio
import os
import re
import stat
from pathlib import Path
from threading import Event

from gptoss_local.talk.documents import (
    IMAGE,
    Document,
    UnreadableFile,
    check,
    is_document,
    read_document,
    read_text,
)

_IMAGE_END = re.compile(rf"{IMAGE}(?![\w.])", re.IGNORECASE)
_LOOK_S = 0.1


def image_in(text: str, folder: Path) -> Path | None:
    """Return the first path in a text that leads to an existing image.

    Paths may have spaces, escaped or not, be in quotes, or begin with `file://`.
    """
    for found in _IMAGE_END.finditer(text):
        before = text[: found.end()].rpartition("\n")[2]
        starts = [match.end() for match in re.finditer(r"^|[\s\"'@(]|file://", before)]
        for start in starts[-12:]:  # the longest name first
            name = re.sub(r"\\(.)", r"\1", before[start:]) if os.name != "nt" else before[start:]
            path = folder / os.path.expanduser(name)
            if os.path.isfile(path):  # pathlib's raises for a name that is too long
                return path
    return None


def image_note(text: str, folder: Path) -> str:
    image = image_in(text, folder)
    return f"{image.name} is an image. gpt-oss reads text only." if image else ""


def read_file(path: Path, stop: Event) -> Document:
    """Read the text of a file, or raise UnreadableFile; `stop` ends reading a document."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("is not a file")
        check(path.name, status.st_size)
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from error
    if not is_document(path.name):
        return read_text(data)

    async def read() -> Document:
        work = asyncio.create_task(read_document(path.name, data))
        while not work.done():
            await asyncio.wait((work,), timeout=_LOOK_S)
            if stop.is_set():
                work.cancel()
        return work.result()

    try:
        return asyncio.run(read())
    except asyncio.CancelledError:
        raise UnreadableFile("was not read to its end") from None
