"""Word documents as Word has them, made by python-docx, and ones that no program should make."""

import zipfile
from io import BytesIO

import docx

REPORT = """\
# Report of the year

# Rivers

Two **longest** ones:

  * Nile
  * Amazon

| River | Length |
| --- | --- |
| Nile \\| Egypt | 6,650 km |
| | about |

That is all."""
"""The text of `make_docx`."""


def make_docx() -> bytes:
    """Return a document with headings, a list and a table with a merged cell."""
    made, data = docx.Document(), BytesIO()
    made.add_heading("Report of the year", 0)
    made.add_heading("Rivers", 1)
    made.add_paragraph("Two **lon").add_run("gest").bold = True
    made.paragraphs[-1].add_run("** ones:")
    for name in ("Nile", "Amazon"):
        made.add_paragraph(name, style="List Bullet")
    table = made.add_table(3, 2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells),
        ("River", "Length", "Nile | Egypt", "6,650 km", "", "about"),
        strict=True,
    ):
        cell.text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    made.add_paragraph("That is all.")
    made.save(data)
    return data.getvalue()


def with_text(text: bytes, instead: bytes) -> bytes:
    """Return the document with other bytes in its main part."""
    data = BytesIO()
    with zipfile.ZipFile(BytesIO(make_docx())) as made, zipfile.ZipFile(data, "w", 8) as changed:
        for name in made.namelist():
            part = made.read(name)
            changed.writestr(name, part.replace(text, instead) if "document.xml" in name else part)
    return data.getvalue()


def unreadable() -> dict[str, tuple[bytes, str, str]]:
    """Return documents that cannot be read, with the words and the hint for each."""
    good = make_docx()
    again = "Open it in the program that made it, and save it again."
    return {
        "bomb": (
            with_text(b"That is all.", b"That is all. " * 8_000_000),
            "the document unpacks to too many bytes",
            "Attach a part of it.",
        ),
        "long": (with_text(b"That is all.", b"all. " * 300_000), "has more than 1 MiB of text", ""),
        "cut": (good[: len(good) // 2], "the document is damaged, or no .docx", again),
        "broken": (with_text(b"</w:tbl>", b""), "the document is damaged, or no .docx", again),
        "locked": (
            b"\xd0\xcf\x11\xe0" + bytes(4092),
            "the document has a password",
            "Save a copy as .docx without the password.",
        ),
        "text": (b"words", "the document is damaged, or no .docx", again),
    }
