"""A bench whose requests fail says so, and prints no numbers."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from tests.threaded_server import QuietHandler, served_by

BENCH = Path(__file__).parents[2] / "bench"
DONE = b'{"response":"a","done":false}\n{"response":"","done":true,"eval_count":2}\n'


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import peers

    return peers  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b'{"error":"no memory"}', "status 500.*no memory"),
        (503, b"busy\n", "status 503: busy"),
        (200, b'{"error":"it died"}', "it died"),
        (200, DONE[:30] + b'{"error":"it died"}', "it died"),
        (200, DONE[:30], "no end"),
        (200, b"", "no end"),
        (200, DONE, ""),
    ],
)
def test_a_failed_request_ends_the_run(
    peers: ModuleType, status: int, body: bytes, words: str
) -> None:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

    with served_by(Handler) as port, closing(peers.Ours(f"http://127.0.0.1:{port}", "big")) as peer:
        if words:
            with pytest.raises(SystemExit, match=words):
                peer.complete("hi", 2, {})
        else:
            assert peer.complete("hi", 2, {}).n_tokens == 2


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
