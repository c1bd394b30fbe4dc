"""Read one file as text: a text file, or the text of a PDF. Images are found and refused.

Knows no widgets. PDFs are read in a process of their own, as the browser tool reads them.
"""

import asyncio
import codecs
import os
import re
import stat
from pathlib import Path
from threading import Event

from gptoss_local.quantities import counted

MAX_FILE_BYTES = 1 << 20
_MAX_PDF_BYTES = 64 << 20
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_IMAGE = r"\.(?:png|jpe?g|gif|webp|bmp|tiff?|heic|avif|ico)"
_IMAGE_END = re.compile(rf"{_IMAGE}(?![\w.])", re.IGNORECASE)
_NO_IMAGES = "gpt-oss reads text only, no images."
_A_PART = "Attach a part of it."
_LOOK_S = 0.1


class UnreadableFile(Exception):
    """A file cannot be attached.

    Attributes:
        why: Follows the name of the file.
        kind: Counts files of a folder that are left out.
    """

    def __init__(self, why: str, hint: str = "", kind: str = "that cannot be read") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.kind = kind


def is_pdf(path: Path) -> bool:
    return path.suffix.lower() == ".pdf"


def is_image(path: Path) -> bool:
    return bool(re.fullmatch(_IMAGE, path.suffix, re.IGNORECASE))


def image_in(text: str, folder: Path) -> Path | None:
    """Return the first path in a text that leads to an existing image.

    Paths may have spaces, be in quotes, have backslashes before spaces, or begin with `file://`, as
    terminals write a file that is dropped on them.
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
    """Return a warning about an image that a text names; empty if there is none."""
    image = image_in(text, folder)
    return f"{image.name} is an image. gpt-oss reads text only." if image else ""


def read_document(path: Path, stop: Event) -> tuple[str, str]:
    """Return the text of a file, and how long it is in words.

    Args:
        path: Of the file.
        stop: Once it is set, a PDF is read no further.

    Raises:
        UnreadableFile: it cannot be attached.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("is not a file")
        if is_image(path):
            raise UnreadableFile("is an image", _NO_IMAGES, "not text")
        if status.st_size > (_MAX_PDF_BYTES if is_pdf(path) else MAX_FILE_BYTES):
            most = "64 MiB" if is_pdf(path) else "1 MiB"
            raise UnreadableFile(f"is larger than {most}", _A_PART, f"over {most}")
        return _read_pdf(path, stop) if is_pdf(path) else _read_text(path)
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from error


def _read_text(path: Path) -> tuple[str, str]:
    data = path.read_bytes()
    encoding = next((name for bom, name in _BOMS.items() if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text") from error
    if "\0" in text:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text")
    text = text.replace("\r\n", "\n")
    return text, counted(text.count("\n") + 1, "line")


def _read_pdf(path: Path, stop: Event) -> tuple[str, str]:
    from gptoss_local.talk.tools.browser.reader import UnreadableError, read_pdf  # PERF: 50 ms

    async def read() -> tuple[str, str]:
        work = asyncio.create_task(read_pdf(path.read_bytes()))
        while not work.done():
            await asyncio.wait((work,), timeout=_LOOK_S)
            if stop.is_set():
                work.cancel()
        pdf = work.result()
        n_pages = counted(pdf.n_pages, "page")
        is_whole = pdf.n_read == pdf.n_pages
        return pdf.text, n_pages if is_whole else f"the first {pdf.n_read} of {n_pages}"

    try:
        text, length = asyncio.run(read())
    except asyncio.CancelledError:
        raise UnreadableFile("was not read to its end") from None
    except UnreadableError as error:
        raise UnreadableFile(str(error)) from error
    if len(text.encode()) > MAX_FILE_BYTES:
        raise UnreadableFile("has more than 1 MiB of text", _A_PART, "over 1 MiB")
    return text, length
