"""Small PDFs, written by hand."""

from collections.abc import Sequence


def make_pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Return a PDF with these lines on its pages."""
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
    ]
    n_font = 3 + 2 * len(pages)
    for n, lines in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET" if lines else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {4 + 2 * n} 0 R "
            f"/Resources << /Font << /F1 {n_font} 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    data, offsets = b"%PDF-1.4\n", []
    for n, text in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{n} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    start, size = len(data), len(objects) + 1
    return (
        data
        + (
            f"xref\n0 {size}\n0000000000 65535 f \n{table}"
            f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
        ).encode()
    )
