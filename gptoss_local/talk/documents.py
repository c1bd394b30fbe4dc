"""Reads an attached text, PDF or Word document, the latter in a process of their own."""

import codecs
import re
from pathlib import PurePath
from typing import Literal, NamedTuple

from gptoss_local.base.quantities import counted

MAX_TEXT_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 32 << 20
IMAGE = r"\.(?:png|jpe?g|gif|webp|bmp|tiff?|heic|avif|ico)"
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DOCUMENTS: dict[str, tuple[str, Literal["pdf", "docx"]]] = {
    ".pdf": ("PDF", "pdf"),
    ".docx": ("Word", "docx"),
}
_OTHERS = {  # formats that are not read, and the ones to save them as
    (".doc",): ("an old Word document", ".docx or PDF"),
    (".rtf", ".docm", ".pages"): ("a document in another format", ".docx or PDF"),
    (".odt", ".ott", ".odp", ".ods"): ("an OpenDocument file", ".docx or PDF"),
    (".ppt", ".pptx"): ("a presentation", "PDF"),
    (".xls", ".xlsx", ".xlsm", ".numbers"): ("a spreadsheet", "CSV or PDF"),
    (".epub", ".mobi"): ("an e-book", "PDF"),
}
_NO_IMAGES = "gpt-oss reads text only, no images."
_A_PART = "Attach a part of it."


class UnreadableFile(Exception):
    """A file cannot be attached; `why` follows its name, `kind` counts such files of a folder."""

    def __init__(self, why: str, hint: str = "", kind: str = "that cannot be read") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.kind = kind


class Document(NamedTuple):
    """The text of a file; `kind` is `file`, `PDF` or `Word`, `length` its lines, pages or words."""

    kind: str
    text: str
    length: str


def is_document(name: str) -> bool:
    return _suffix(name) in _DOCUMENTS


def is_image(name: str) -> bool:
    return bool(re.fullmatch(IMAGE, _suffix(name)))


def fenced(name: str, text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}\n"


def check(name: str, n_bytes: int) -> None:
    """Raise UnreadableFile if the name or the size forbids reading the file."""
    if is_image(name):
        raise UnreadableFile("is an image", _NO_IMAGES, "not text")
    for suffixes, (what, instead) in _OTHERS.items():
        if _suffix(name) in suffixes:
            raise UnreadableFile(f"is {what}", f"Save it as {instead}.", "not text")
    max_bytes = MAX_DOCUMENT_BYTES if is_document(name) else MAX_TEXT_BYTES
    if n_bytes > max_bytes:
        most = f"{max_bytes >> 20} MiB"
        raise UnreadableFile(f"is larger than {most}", _A_PART, f"over {most}")


def read_text(data: bytes) -> Document:
    encoding = next((name for bom, name in _BOMS.items() if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text") from error
    if "\0" in text:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text")
    text = text.replace("\r\n", "\n")
    return Document("file", text, counted(text.count("\n") + 1, "line"))


async def read_document(name: str, data: bytes) -> Document:
    from gptoss_local.talk.tools.browser.page import UnreadableError
    from gptoss_local.talk.tools.browser.reader import read_attached  # PERF: 50 ms

    check(name, len(data))
    if not is_document(name):
        return read_text(data)
    kind, form = _DOCUMENTS[_suffix(name)]
    try:
        found = await read_attached(data, form)
    except UnreadableError as error:
        raise UnreadableFile(str(error), error.hint) from error
    if len(found.text.encode()) > MAX_TEXT_BYTES:
        raise UnreadableFile("has more than 1 MiB of text", _A_PART, "over 1 MiB")
    return Document(kind, found.text, found.length)


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()
