"""A web site on this machine: servers, and their faults, for the tests."""

import gzip
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pypdf import PdfWriter

from tests.threaded_server import QuietHandler, served_by
from tests.tui.pdf import make_pdf

PAGES = Path(__file__).parent / "pages"
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Site:
    """A running site.

    Attributes:
        url: Without a slash at the end.
        requests: Method, path, headers and body of each request.
        answers: By path.
    """

    url: str
    port: int
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        return [path for _, path, *_ in self.requests]


@contextmanager
def running_site() -> Iterator[Site]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.requests.append((self.command, self.path, headers, body))
            path = self.path.partition("?")[0]
            answer = site.answers.get(path)
            if answer is None and (PAGES / path[1:]).is_file():
                answer = text((PAGES / path[1:]).read_bytes(), "text/html")
            with suppress(BrokenPipeError, ConnectionResetError):
                if path.startswith("/slow"):
                    self.send_slowly()
                else:
                    self.send(*(answer or (404, {}, b"no such page")))

        do_POST = do_CONNECT = do_GET

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def send_slowly(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            while not is_over.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()

    is_over = threading.Event()
    with served_by(Handler) as port:
        site = Site(f"http://127.0.0.1:{port}", port)
        yield site
        is_over.set()


def text(body: str | bytes, kind: str = "text/plain", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return 200, {"Content-Type": kind} | headers, data


def redirect(to: str) -> Answer:
    return 302, {"Location": to}, b""


def bomb(n_bytes: int) -> bytes:
    return gzip.compress(b"\0" * n_bytes, 9)


def pdf(*pages: str, title: str = "") -> bytes:
    """Return a PDF with a line of text on each page."""
    writer = PdfWriter(clone_from=io.BytesIO(make_pdf([[words] for words in pages])))
    if title:
        writer.add_metadata({"/Title": title})
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()
