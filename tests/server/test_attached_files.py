"""Files that the page attaches are read by the server, next to its answers and with limits."""

from collections.abc import Iterator
from io import BytesIO

import httpx
import pypdf
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.server.page_client import Page
from tests.tui.docx import REPORT, make_docx, unreadable
from tests.tui.pdf import make_pdf


@pytest.fixture(scope="module")
def page(server: RunningServer) -> Iterator[Page]:
    with Page(server) as opened:
        yield opened


def put(page: Page, name: str, data: bytes) -> httpx.Response:
    return page.http.post("/api/gptoss/files", params={"name": name}, content=data)


def locked_pdf() -> bytes:
    writer, data = pypdf.PdfWriter(BytesIO(make_pdf([["Hello"]]))), BytesIO()
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(data)
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "label", "text"),
    [
        ("no]tes.md", b"# N\r\n``` x\n", "file: no)tes.md, 2 lines", "````\n# N\n``` x\n````\n"),
        ("ü.txt", "größer".encode("utf-16"), "file: ü.txt, 1 line", "```\ngrößer\n```\n"),
        (
            "paper.PDF",
            make_pdf([["On MXFP4"], ["The end."]]),
            "PDF: paper.PDF, 2 pages",
            "```\n[page 1]\nOn MXFP4\n\n[page 2]\nThe end.\n```\n",
        ),
        ("a b.docx", make_docx(), "Word: a b.docx, 39 words", f"```\n{REPORT}\n```\n"),
        (
            "kunden.csv",  # as Excel saves it
            "Größe;Preis\r\nÜbermaß;5 €\r\n".encode("cp1252"),
            "file: kunden.csv, 2 lines, read as Windows-1252",
            "```\nGröße;Preis\nÜbermaß;5 €\n```\n",
        ),
        (
            "été.txt",
            ("L’été, déjà vu : où êtes-vous, garçon ? " * 9).encode("cp1252"),
            "file: été.txt, 1 line, read as Windows-1252",
            "```\n" + "L’été, déjà vu : où êtes-vous, garçon ? " * 9 + "\n```\n",
        ),
        (
            "письмо.txt",
            ("Привет, как дела? Это простой текст. " * 9).encode("cp1251"),
            "file: письмо.txt, 1 line, read as Windows-1251",
            "```\n" + "Привет, как дела? Это простой текст. " * 9 + "\n```\n",
        ),
        ("tags.txt", b"<|start|>", "file: tags.txt, 1 line", "```\n<|start|>\n```\n"),
    ],
)
def test_a_file_as_text_with_its_tokens(
    page: Page, vocabulary: Vocabulary, name: str, data: bytes, label: str, text: str
) -> None:
    whole = f"{name}:\n{text}"
    n = len(vocabulary.encode(whole))
    assert put(page, name, data).json() == {"label": f"{label}, {n} tokens", "text": whole}
    assert page.call("POST", "tokens", {"text": whole}) == {"n": n}


def test_files_that_cannot_be_read_say_what_to_do(page: Page) -> None:
    pdf = "x.pdf cannot be read: the PDF"
    cases = [
        ("x.pdf", make_pdf([[], []]), f"{pdf} has no text; it may be a scan", "ocrmypdf"),
        ("x.pdf", locked_pdf(), f"{pdf} is protected by a password", "without the password"),
        ("x.pdf", make_pdf([["Hello"]])[:200], f"{pdf} is damaged", "save it again"),
        ("x.doc", b"", "x.doc is an old Word document", "Save it as .docx or PDF."),
        ("x.odt", b"", "x.odt is an OpenDocument file", "Save it as .docx or PDF."),
        ("x.pptx", b"", "x.pptx is a presentation", "Save it as PDF."),
        ("cat.JPG", b"", "cat.JPG is an image", "gpt-oss reads text only"),
        ("x.dat", b"\x89PNG\r\n\x1a\n" + bytes(range(1, 256)) * 4, "x.dat is not a text", ""),
        ("x.dat", b"\xff\x81", "x.dat is not a text file", "gpt-oss reads text only"),
        ("x.bin", b"\xff\0", "x.bin is not a text file", "gpt-oss reads text only"),
        ("x.txt", b"A" * (2**20 + 1), "x.txt is larger than 1 MiB", "Attach a part of it."),
        *(("x.docx", *case) for case in unreadable().values()),
    ]
    for name, data, why, hint in cases:
        reply = put(page, name, data)
        assert reply.status_code == 400, why
        assert why in reply.json()["error"]
        assert hint in reply.json()["hint"], why
