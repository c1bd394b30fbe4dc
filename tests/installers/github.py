"""A stand-in for GitHub: the API's page of one release of llama.cpp, and its files with ranges."""

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import llama_release

BUILD = "b11312"


class GitHub(ThreadingHTTPServer):
    """Attributes:
    files: What the release has.
    digests: That the API says instead of the right ones.
    cuts: Bytes after which the answers break, one after the other; of the page, too, if told.
    has_ranges: Else each answer is a whole file.
    page_answer: An error for the API's page, by its status, and the body.
    redirects_to: Another host, which has the files.
    asked: The paths that were asked for, with the first byte.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.cuts: list[int] = []
        self.cuts_page = False
        self.has_ranges = True
        self.page_answer: tuple[int, bytes] | None = None
        self.redirects_to = ""
        self.asked: list[tuple[str, int]] = []

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/tags"

    def page(self) -> bytes:
        url = f"http://127.0.0.1:{self.server_port}/files"
        assets = [
            {
                "name": name,
                "size": len(data),
                "digest": "sha256:" + self.digests.get(name, hashlib.sha256(data).hexdigest()),
                "browser_download_url": f"{url}/{name}",
            }
            for name, data in self.files.items()
        ]
        return json.dumps({"tag_name": BUILD, "assets": assets}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        github, name = self.server, self.path.rpartition("/")[2]
        is_page = self.path == f"/tags/{BUILD}"
        status, data = 200, github.page() if is_page else github.files.get(name)
        if is_page and github.page_answer:
            status, data = github.page_answer
        if data is None:
            self.send_error(404)
            return
        if github.redirects_to and not is_page:
            self.send_response(302)
            self.send_header("Location", github.redirects_to + self.path)
            self.end_headers()
            return
        start = 0
        if github.has_ranges and not is_page:
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        github.asked.append((name, start))
        self.send_response(206 if start else status)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        cuts = github.cuts if github.cuts_page or not is_page else []
        self.wfile.write(data[start : start + cuts.pop(0) if cuts else None])

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@contextmanager
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def pack(libraries: Path, path: Path) -> bytes:
    """Return an archive as llama.cpp's releases are: each library with three names, and programs.

    Of this machine's own build, whose libraries have one name each.
    """
    top = f"llama-{BUILD}"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for library in sorted(libraries.glob("*.so")):
            tar.add(library, f"{top}/{library.name}.0.0.1")
            for link, target in ((".0", ".0.0.1"), ("", ".0")):
                member = tarfile.TarInfo(f"{top}/{library.name}{link}")
                member.type, member.linkname = tarfile.SYMTYPE, f"{library.name}{target}"
                tar.addfile(member)
        member = tarfile.TarInfo(f"{top}/llama-server")
        member.mode = 0o755
        tar.addfile(member)
    return path.read_bytes()


def own_release(folder: Path) -> dict[str, bytes]:
    """Return the files of a release with this machine's own llama.cpp, for its CPU."""
    import llama_cpp
    from gpu_choice import arch_of

    libraries = Path(llama_cpp.__file__).parent / "lib"
    (name,) = llama_release.names(BUILD, "cpu", arch_of())
    return {name: pack(libraries, folder / name)}
