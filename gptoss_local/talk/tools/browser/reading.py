"""Turns the bytes of a page into text: the process that `reader` starts.

    python -m gptoss_local.talk.tools.browser.reading < REQUEST > CONTENT

Both are msgpack: `page.Request`, and `page.Content`, `page.Attached` or `page.Unreadable`.
"""

import contextlib
import io
import logging
import re
import sys
import time
import zipfile
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from gptoss_local.base.quantities import counted
from gptoss_local.talk.documents import UnreadableFile, guessed_encoding
from gptoss_local.talk.tools.browser.html_text import (
    clean,
    clean_texts,
    domain_of,
    main_part,
    mark_images,
    mark_links,
    text_of_page,
)
from gptoss_local.talk.tools.browser.page import (
    MAX_TEXT_CHARACTERS,
    SOURCE_PREFIX,
    Attached,
    Content,
    Fetched,
    Request,
    Unreadable,
    without_markup,
)
from gptoss_local.talk.tools.browser.view import wrap_lines

_MAX_MEMORY_BYTES = 3 * 2**30
_MAX_PDF_PAGES = 500
_PDF_S = 8.0  # then the rest of the pages is left out
_MAX_HTML_CHARACTERS = 5_000_000
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)")
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_LOOKS_LIKE_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype html|html)")
_XML_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
_HTML = ("text/html", "application/xhtml+xml")
_MAX_UNPACKED_BYTES = 32 << 20  # of a Word document, beyond its own size
_ENCRYPTED = b"\xd0\xcf\x11\xe0"  # the container of old documents, and of those with a password
_HEADINGS = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"
_MAX_COLUMNS = 63  # of a table in Word
_SAVE_AGAIN = "Open it in the program that made it, and save it again."


def main() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    answer: Content | Attached | Unreadable
    try:
        if request.what == "pdf":
            answer = _read_pdf(request.page.body)
        elif request.what == "docx":
            answer = _read_docx(request.page.body)
        else:
            answer = read_content(request.page, is_source=request.what == "source")
    except UnreadableFile as error:
        answer = Unreadable(error.why, error.hint)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


def read_content(page: Fetched, *, is_source: bool) -> Content:
    kind = _kind_of(page)
    if kind == "application/pdf":
        if is_source:
            raise UnreadableFile("a PDF has no source")
        pdf = _read_pdf(page.body)
        return _content(page, pdf.title, pdf.text)
    text = decoded(page)
    if is_source:
        source = _content(page, "", text)
        return msgspec.structs.replace(source, url=f"{SOURCE_PREFIX}{page.url}")
    if kind in _HTML:
        return _read_html(page.url, text)
    return _content(page, "", text)


def _kind_of(page: Fetched) -> str:
    kind = page.content_type.partition(";")[0].strip()
    if page.body.startswith(b"%PDF-"):
        return "application/pdf"
    if kind in ("", "application/octet-stream"):
        if _LOOKS_LIKE_HTML.match(page.body[:2000].lower()):
            return "text/html"
        return "text/plain"
    return kind


def decoded(page: Fetched) -> str:
    body = page.body
    declared = _CHARSET.search(page.content_type)
    meta = _META_CHARSET.search(body[:4096])
    names = [encoding for bom, encoding in _BOMS.items() if body.startswith(bom)]
    names += [declared[1]] if declared else []
    names += [meta[1].decode("ascii")] if meta else []
    for name in (*names, "utf-8"):
        # Browsers read Latin-1 as Windows-1252, which has more characters.
        name = "cp1252" if name.lower() in ("iso-8859-1", "latin-1", "latin1", "ascii") else name
        with contextlib.suppress(LookupError, UnicodeError):
            return _checked(body.decode(name))
    return _checked(_guessed(body))


def _guessed(body: bytes) -> str:
    n_special = sum(byte >= 0x80 for byte in body)
    text = body.decode("utf-8", "replace")
    if text.count("�") * 3 < n_special:  # UTF-8 with a few mistakes
        return text
    return body.decode(guessed_encoding(body), "replace")


def _checked(text: str) -> str:
    if "\0" in text[:10_000]:
        raise UnreadableFile("it is not text")
    return text


def _read_html(url: str, text: str) -> Content:
    from lxml import etree, html

    n_characters = len(text)
    text = _XML_DECLARATION.sub("", text[:_MAX_HTML_CHARACTERS], count=1)
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise UnreadableFile("it is empty") from error
    clean_texts(root)
    titles = [clean(title.text or "") for title in root.iter("title")]
    body = root.find("body")
    body = root if body is None else body
    part, asides = main_part(body)
    links = mark_links(root, url)
    mark_images(root)
    written = text_of_page(part, frozenset(asides))
    if part is not body or asides:
        rest = [text_of_page(body, frozenset((part,))), *map(text_of_page, asides)]
        if left := "\n\n".join(filter(None, rest)):
            written = f"{written}\n\n* * *\n\n{left}"
    if any(error.level_name == "FATAL" for error in parser.error_log):
        written += "\n\n(The rest of the page cannot be read: it is nested too deeply or damaged.)"
    if n_characters > _MAX_HTML_CHARACTERS:
        written += f"\n\n(Only {_MAX_HTML_CHARACTERS:,} characters of its source were read.)"
    title = next(filter(None, titles), "") or domain_of(url)
    return Content(url=url, title=title, text=_with_url(url, _bounded(written)), links=links)


def _content(page: Fetched, title: str, text: str) -> Content:
    text = without_markup(text.replace("\r\n", "\n"))
    parts = urlsplit(page.url)
    title = title or unquote(parts.path.rpartition("/")[2]) or parts.netloc
    title = without_markup(" ".join(title.split()))
    return Content(url=page.url, title=title, text=_with_url(page.url, _bounded(text)))


def _with_url(url: str, text: str) -> str:
    # Wrapped here, where it takes no time of the event loop.
    return "\n".join(wrap_lines(f"\nURL: {without_markup(url)}\n{text}"))


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    note = f"(The page is cut after {MAX_TEXT_CHARACTERS:,} characters.)"
    return f"{text[:MAX_TEXT_CHARACTERS]}\n\n{note}"


def _read_pdf(body: bytes) -> Attached:
    import pypdf
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)
    pages: list[str] = []
    n_pages = n_read = 0
    start_s = time.monotonic()
    try:
        reader = pypdf.PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableFile(
                "the PDF is protected by a password", "Save a copy without the password."
            )
        title = str((reader.metadata and reader.metadata.title) or "")
        n_pages = len(reader.pages)
        for n_read, page in enumerate(reader.pages, 1):
            if text := page.extract_text().strip():
                pages.append(f"[page {n_read}]\n{text}")
            is_late = time.monotonic() - start_s > _PDF_S
            is_long = sum(map(len, pages)) > MAX_TEXT_CHARACTERS
            if n_read == _MAX_PDF_PAGES or is_late or is_long:
                break
    except UnreadableFile:
        raise
    except DependencyError as error:
        raise UnreadableFile("the PDF is encrypted", "Save a copy without the password.") from error
    except Exception as error:  # pypdf raises any exception for a damaged file
        raise UnreadableFile("the PDF is damaged", _SAVE_AGAIN) from error
    if not pages:
        raise UnreadableFile(
            "the PDF has no text; it may be a scan", "Let a program such as ocrmypdf read it first."
        )
    if n_read < n_pages:
        pages.append(f"(The PDF has {n_pages:,} pages; these are the first {n_read}.)")
    text = "\n\n".join(pages).encode(errors="replace").decode()
    length = counted(n_pages, "page")
    if n_read < n_pages:
        length = f"the first {n_read} of {length}"
    return Attached(title=title, text=text, length=length)


def _read_docx(body: bytes) -> Attached:
    import mammoth
    from lxml import html

    if body.startswith(_ENCRYPTED):
        raise UnreadableFile(
            "the document has a password", "Save a copy as .docx without the password."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as parts:
            n_unpacked = sum(part.file_size for part in parts.infolist())
        if n_unpacked > len(body) + _MAX_UNPACKED_BYTES:
            raise UnreadableFile("the document unpacks to too many bytes", "Attach a part of it.")
        no_images = mammoth.images.img_element(lambda _: {})
        made = mammoth.convert_to_html(
            io.BytesIO(body), style_map=_HEADINGS, convert_image=no_images
        )
        root = html.fragment_fromstring(made.value, create_parent="div")
        for table in reversed(list(root.iter("table"))):  # those inside others first
            rows = _rows(table)
            width = max(map(len, rows), default=0)
            lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
            lines.insert(1, "|" + " --- |" * width)
            written = html.Element("p")
            for line in lines:
                html.etree.SubElement(written, "br").tail = line
            table.getparent().replace(table, written)
    except UnreadableFile:
        raise
    except Exception as error:  # mammoth raises any exception for a damaged file
        raise UnreadableFile("the document is damaged, or no .docx", _SAVE_AGAIN) from error
    text = text_of_page(root).encode(errors="replace").decode()
    if not text:
        raise UnreadableFile("the document has no text", "It may have pictures only.")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise UnreadableFile("the document has too much text", "Attach a part of it.")
    return Attached(title="", text=text, length=counted(len(text.split()), "word"))


def _rows(table: Any) -> list[list[str]]:
    """Return the cells of a table as text; places that a cell spans are empty."""
    rows: list[list[str]] = []
    n_hanging: dict[int, int] = {}  # rows that a cell above still takes, by column
    for line in table.iter("tr"):
        row: list[str] = []
        for cell in [*line.iterchildren("td", "th"), None]:
            while n_hanging.get(len(row)):
                n_hanging[len(row)] -= 1
                row.append("")
            if cell is None:
                break
            text = " ".join(text_of_page(cell).split()).replace("|", "\\|")
            for n in range(min(_MAX_COLUMNS, int(cell.get("colspan", "1")))):
                n_hanging[len(row)] = int(cell.get("rowspan", "1")) - 1
                row.append("" if n else text)
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
