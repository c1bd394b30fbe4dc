"""A Hugging Face hub on a local port: the hub's protocol as huggingface_hub speaks it, and faults.

Addresses, headers, statuses and error codes match huggingface.co: large files are in LFS and
redirect to a CDN, which has another host name (`localhost`) and wants no token. A hub that stores
files with Xet also sends `X-Xet-Hash`; this one does not, so everything goes over plain HTTP.
"""

import hashlib
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

PIECE_BYTES = 65_536
MEMBER = "hf_member"  # has accepted every licence, may read private repositories
STRANGER = "hf_stranger"  # a valid token without rights


@dataclass
class Fault:
    """A fault in the content of a file, in `n_times` answers that carry it."""

    n_times: int = 1_000_000
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Bytes after which the connection closes."""
    stall_after: int | None = None
    """Bytes after which nothing comes any more, on an open connection."""
    flip_at: int | None = None
    """Offset of a byte of the file that arrives wrong."""
    replaced_by: bytes | None = None
    """Comes with status 200 instead of the file."""
    delay_s: float = 0.0
    """Pause before each piece of PIECE_BYTES."""
    ignores_range: bool = False
    has_no_length: bool = False
    """The end of the connection is the end of the file."""


@dataclass
class Repo:
    """Files at every commit; `revisions` names commits."""

    gated: bool = False
    private: bool = False
    architecture: str = ""
    """Of the GGUFs, which the hub reads."""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)

    def push(self, files: dict[str, bytes], revision: str = "main") -> str:
        """Add a commit with exactly these files."""
        parts = (f"{name} {_git_sha1(content)}" for name, content in sorted(files.items()))
        commit = hashlib.sha1("\n".join(parts).encode()).hexdigest()
        self.commits[commit] = files
        self.revisions |= {revision: commit, commit: commit}
        return commit


class Request(NamedTuple):
    method: str
    path: str
    host: str
    authorization: str | None
    range: str | None


class HubServer:
    """State of the hub; tests change it while it runs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.repos: dict[str, Repo] = {}
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()
        """Bytes of content sent, by name of the file."""
        self.n_most_parallel = 0
        self.n_sending = 0
        self._lock = threading.Lock()

    def add(self, name: str, files: dict[str, bytes], **rights: Any) -> Repo:
        """Make a repository with one commit on `main`."""
        repo = self.repos[name] = Repo(**rights)
        repo.push(files)
        return repo

    def strike(self, name: str, *faults: Fault) -> None:
        """Let these go wrong with a file, one after the other; "" is the list of files."""
        self._faults[name] = faults

    def heal(self) -> None:
        self._faults.clear()

    def take_fault(self, name: str) -> Fault:
        with self._lock:
            for fault in self._faults.get(name, ()):
                if fault.n_times > 0:
                    fault.n_times -= 1
                    return fault
            return Fault()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Count how many files are sent at once."""
        with self._lock:
            self.n_sending += 1
            self.n_most_parallel = max(self.n_most_parallel, self.n_sending)
        try:
            yield
        finally:
            with self._lock:
                self.n_sending -= 1

    def count_sent(self, name: str, n_bytes: int) -> None:
        with self._lock:
            self.sent[name] += n_bytes


@contextmanager
def run_hub(tls: ssl.SSLContext | None = None) -> Iterator[HubServer]:
    """Serve on a free port until the block ends."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.hub = HubServer(server.server_port)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.hub.endpoint = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    hub: HubServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: in many tests a client goes away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        hub = self.server.hub
        raw_path = urlsplit(self.path).path
        host = self.headers["Host"].partition(":")[0]
        seen = (self.headers["Authorization"], self.headers["Range"])
        hub.requests.append(Request(self.command, unquote(raw_path), host, *seen))
        match [unquote(part) for part in raw_path.strip("/").split("/")]:
            case ["api", "models", owner, name]:
                self._send_list(f"{owner}/{name}", "main")
            case ["api", "models", owner, name, "revision", revision]:
                self._send_list(f"{owner}/{name}", revision)
            case [owner, name, "resolve", revision, *parts]:
                self._resolve(f"{owner}/{name}", revision, "/".join(parts))
            case ["cdn", owner, name, commit, *parts]:
                file = "/".join(parts)
                self._send_content(file, hub.repos[f"{owner}/{name}"].commits[commit][file], {})
            case _:
                self._send_error(404, "", "Not Found")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _find(self, name: str, revision: str) -> tuple[Repo, str] | None:
        """Find a commit, or send the error that the hub sends instead."""
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        repo = self.server.hub.repos.get(name)
        if token not in ("", MEMBER, STRANGER):
            self._send_error(401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.private and token != MEMBER):
            if token:
                self._send_error(404, "RepoNotFound", "Repository not found")
            else:
                self._send_error(401, "", "Invalid username or password.")
        elif revision not in repo.revisions:
            self._send_error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return repo, repo.revisions[revision]
        return None

    def _send_list(self, name: str, revision: str) -> None:
        fault = self.server.hub.take_fault("")
        if fault.status:
            self._send_error(fault.status, "", "struck", fault.headers)
        elif fault.replaced_by is not None:
            self._send(200, fault.replaced_by, {"Content-Type": "text/html"})
        elif found := self._find(name, revision):
            repo, commit = found
            siblings = [_sibling(*item) for item in repo.commits[commit].items()]
            body = {"id": name, "sha": commit, "gated": repo.gated, "siblings": siblings}
            if repo.architecture:
                body["gguf"] = {"architecture": repo.architecture}
            self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _resolve(self, name: str, revision: str, file: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return
        repo, commit = found
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        content = repo.commits[commit].get(file)
        if repo.gated and token != MEMBER:
            status = 403 if token else 401
            self._send_error(status, "GatedRepo", f"Access to model {name} is restricted.")
        elif content is None:
            self._send_error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        elif not _is_lfs(file):
            etag = f'"{_git_sha1(content)}"'
            self._send_content(file, content, {"X-Repo-Commit": commit, "ETag": etag})
        else:
            scheme = self.server.hub.endpoint.partition(":")[0]
            cdn = f"{scheme}://localhost:{self.server.hub.port}/cdn/{name}/{commit}/{quote(file)}"
            headers = {
                "Location": cdn,
                "X-Repo-Commit": commit,
                "X-Linked-Size": str(len(content)),
                "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                "Accept-Ranges": "bytes",
            }
            self._send(302, b"", headers)

    def _send_content(self, file: str, content: bytes, headers: dict[str, str]) -> None:
        fault = Fault() if self.command == "HEAD" else self.server.hub.take_fault(file)
        if fault.status:
            self._send_error(fault.status, "", "struck", fault.headers)
            return
        if fault.replaced_by is not None:
            self._send(200, fault.replaced_by, {"Content-Type": "text/html"})
            return
        if fault.flip_at is not None:
            at = fault.flip_at
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        asked = self.headers["Range"]
        start = 0 if asked is None or fault.ignores_range else _range_start(asked)
        if start:
            headers = headers | {
                "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"
            }
        if fault.has_no_length:
            self.close_connection, headers = True, headers | {"Content-Length": ""}
        self._start(
            206 if start else 200, len(content) - start, headers | {"Accept-Ranges": "bytes"}
        )
        if self.command == "GET":
            with self.server.hub.sending(), suppress(OSError):
                self._send_pieces(file, content[start:], fault)

    def _send_pieces(self, file: str, content: bytes, fault: Fault) -> None:
        ends = [end for end in (fault.cut_after, fault.stall_after) if end is not None]
        end = min([len(content), *ends])
        for start in range(0, end, PIECE_BYTES):
            time.sleep(fault.delay_s)
            piece = content[start : min(start + PIECE_BYTES, end)]
            self.wfile.write(piece)
            self.server.hub.count_sent(file, len(piece))
        if fault.stall_after is not None:
            self.rfile.read(1)  # until the client gives up
        self.close_connection |= end < len(content)

    def _send_error(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        coded = {"X-Error-Code": code} if code else {}
        body = json.dumps({"error": message}).encode()
        self._send(status, body, {"X-Error-Message": message, **coded, **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._start(status, len(body), headers)
        if self.command == "GET":
            self.wfile.write(body)

    def _start(self, status: int, n_bytes: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(n_bytes), **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()


def _is_lfs(file: str) -> bool:
    return file.endswith((".safetensors", ".gguf", "tokenizer.json"))


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sibling(file: str, content: bytes) -> dict[str, object]:
    lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    entry = {"rfilename": file, "blobId": _git_sha1(content), "size": len(content)}
    return entry | ({"lfs": lfs} if _is_lfs(file) else {})


def _range_start(header: str) -> int:
    return int(header.removeprefix("bytes=").removesuffix("-"))
