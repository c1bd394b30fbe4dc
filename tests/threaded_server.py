"""A server of a test's own, from a handler of requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing when a client leaves: a command's output may go to the same terminal."""


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Yield the port of a server with this handler."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
