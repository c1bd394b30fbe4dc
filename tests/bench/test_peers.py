"""A bench whose requests fail says so, and prints no numbers."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from tests.conftest import RunningServer

BENCH = Path(__file__).parents[2] / "bench"
DONE = b'{"response":"a","done":false}\n{"response":"","done":true,"eval_count":2}\n'


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import peers

    return peers  # type: ignore[no-any-return]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that says one thing, with a status, and closes the connection."""
    status, body = request.param

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ((500, b'{"error":"no memory"}'), "status 500.*no memory"),
        ((503, b"busy\n"), "status 503: busy"),
        ((200, b'{"error":"it died"}'), "it died"),
        ((200, DONE[:30] + b'{"error":"it died"}'), "it died"),
        ((200, DONE[:30]), "no end"),
        ((200, b""), "no end"),
    ],
    indirect=["url"],
)
def test_a_failed_request_ends_the_run(peers: ModuleType, url: str, words: str) -> None:
    with closing(peers.Ours(url, "big")) as peer, pytest.raises(SystemExit, match=words):
        peer.complete("hi", 2, {})


@pytest.mark.parametrize("url", [(200, DONE)], indirect=True)
def test_an_answer_is_measured(peers: ModuleType, url: str) -> None:
    with closing(peers.Ours(url, "big")) as peer:
        answer = peer.complete("hi", 2, {})
    assert answer.n_tokens == 2
    assert answer.ttft_s > 0


def test_a_model_that_is_not_there(peers: ModuleType, server: RunningServer) -> None:
    words = r"status 404.*not found"
    with closing(peers.Ours(server.url, "no")) as peer, pytest.raises(SystemExit, match=words):
        peer.complete("hi", 2, {})
    assert httpx.get(server.url, trust_env=False).is_success


def test_a_server_that_cannot_start_ends_the_run(peers: ModuleType) -> None:
    command = [sys.executable, "-c", "raise OSError('no such model')"]
    with (
        pytest.raises(SystemExit, match="no such model"),
        peers.serving(command, {}, "http://127.0.0.1:9"),
    ):
        pass


def test_every_bench_can_be_imported() -> None:
    names = [path.stem for path in BENCH.glob("*.py")]
    code = f"import importlib; [importlib.import_module(name) for name in {names}]"
    subprocess.run([sys.executable, "-c", code], cwd=BENCH, check=True, timeout=60)
