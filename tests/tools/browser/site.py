"""A web site on this machine: what tests need of servers, and the faults that they have."""

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGES = Path(__file__).parent / "pages"
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Site:
    """A running site.

    Attributes:
        url: Without a slash at the end.
        requests: Method, path, headers and body of each request.
        answers: By path, or what makes an answer of path and body.
    """

    url: str
    port: int
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    answers: dict[str, Answer | Callable[[str, bytes], Answer]] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        return [path for _, path, *_ in self.requests]


@contextmanager
def running_site(host: str = "127.0.0.1") -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            site.requests.append((self.command, self.path, headers, body))
            try:
                self.answer(self.path.partition("?")[0], body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_POST = do_GET
        do_CONNECT = do_GET

        def answer(self, path: str, body: bytes) -> None:
            if path.startswith("/slow"):
                self.slowly()
            elif path in site.answers:
                answer = site.answers[path]
                self.send(*(answer(path, body) if callable(answer) else answer))
            elif (PAGES / path[1:]).is_file():
                self.send(200, {"Content-Type": "text/html"}, (PAGES / path[1:]).read_bytes())
            else:
                self.send(404, {}, b"no such page")

        def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def slowly(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            while not is_over.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    is_over = threading.Event()
    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    site = Site(f"http://{host}:{port}", port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def text(body: str | bytes, kind: str = "text/plain", **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else body.encode()
    return 200, {"Content-Type": kind} | headers, data


def redirect(to: str) -> Answer:
    return 302, {"Location": to}, b""


def bomb(n_bytes: int) -> bytes:
    return gzip.compress(b"\0" * n_bytes, 9)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def pdf(*pages: str, title: str = "") -> bytes:
    """Return a PDF with lines of text."""
    import io

    import pypdf
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    for words in pages:
        page = writer.add_blank_page(300, 300)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({words}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()
