"""Reads an attached text, PDF or Word document, the latter in a process of their own."""

import codecs
import re
from pathlib import PurePath
from typing import Literal, NamedTuple

from gptoss_local.base.off_loop import run_off_loop
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
_CODE_PAGES = [  # cp1252 has the characters of Latin-1, and more
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "gb18030", "big5", "cp949", "euc_jp", "koi8_r"),
]
_N_TO_GUESS = 32  # bytes outside ASCII; from fewer an encoding is guessed badly
_MIXED_UP = 0.07  # how much more disorder Windows-1252 may have than the best guess
_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NO_IMAGES = "gpt-oss reads text only, no images."
_A_PART = "Attach a part of it."


class UnreadableFile(Exception):
    """A file or page has no text; `why` follows its name, `kind` counts such files of a folder."""

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
    note = ""
    try:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            encoding = guessed_encoding(data)
            text = data.decode(encoding)
            note = f", read as {encoding.replace('cp125', 'Windows-125')}"
            if _NO_TEXT.search(text):
                raise
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text") from error
    if "\0" in text:
        raise UnreadableFile("is not a text file", _NO_IMAGES, "not text")
    text = text.replace("\r\n", "\n")
    return Document("file", text, f"{counted(len(text.splitlines()), 'line')}{note}")


def guessed_encoding(data: bytes) -> str:
    """Return the encoding of a text that is not UTF-8; Windows-1252 unless another fits better."""
    if sum(byte >= 0x80 for byte in data) < _N_TO_GUESS:
        return "cp1252"
    from charset_normalizer import from_bytes  # PERF: 30 ms

    found = from_bytes(data[:20_000], cp_isolation=_CODE_PAGES)
    best = found.best()
    for match in found:
        if "cp1252" in match.could_be_from_charset and best is not None:
            is_near = match.chaos <= best.chaos + _MIXED_UP
            return "cp1252" if is_near else best.encoding
    return "cp1252" if best is None else best.encoding


async def read_document(name: str, data: bytes) -> Document:
    from gptoss_local.talk.tools.browser.page import Unreadable
    from gptoss_local.talk.tools.browser.reader import read_attached  # PERF: 50 ms

    check(name, len(data))
    if not is_document(name):
        return await run_off_loop(lambda check: read_text(data), len(data))
    kind, form = _DOCUMENTS[_suffix(name)]
    found = await read_attached(data, form)
    if isinstance(found, Unreadable):
        raise UnreadableFile(found.why, found.hint)
    if len(found.text.encode()) > MAX_TEXT_BYTES:
        raise UnreadableFile("has more than 1 MiB of text", _A_PART, "over 1 MiB")
    return Document(kind, found.text, found.length)


def _suffix(name: str) -> str:
    return PurePath(name).suffix.lower()
