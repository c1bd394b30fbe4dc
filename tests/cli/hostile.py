"""Text that drives a terminal, where commands find it: a server, files, folders; and a terminal."""

import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.threaded_server import QuietHandler, served_by

EVIL = (
    "\x1b]52;c;cHduZWQ=\x07\x1b]0;pwned\x1b\\\x1b[2J\x1b[8m\x1bP+q\x1b\\\x9b2J\x9d0;x\x9c\x90q"
    "\b\x0e\x05\x7f\u202eevil\u2066"
)
_OURS = re.compile(  # styles, the cursor of a bar, of the line that is edited, and its questions
    r"\x1b\[(?!8m)[0-9;]*m|\x1b\[\?(?:25|2004|1|7|12|2026|1004|1000|1003|1015|1006|1049|2048|2031)[hl]"
    r"|\x1b\[\d*[ABCDFKG]|\x1b\[J|\x1b\[6n|\x1b\[\d*(?:;\d+)?H"
)
_DRIVES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def driven_by(written: str) -> list[str]:
    """Return the characters with which others drive the terminal, and the text after them."""
    text = _OURS.sub("", written.replace("\r\n", "\n").replace("\r", ""))
    return [text[found.start() : found.start() + 20] for found in _DRIVES.finditer(text)]


@contextmanager
def hostile_server(*, refuses: bool = False, speaks_json: bool = True) -> Iterator[int]:
    """Answer everything with EVIL where a text may stand; yields the port.

    Args:
        refuses: Everything but the version is an error.
        speaks_json: Errors are JSON.
    """

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def version_string(self) -> str:
            return "gptoss/0.1.0"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            is_error = refuses and self.path != "/api/version"
            if is_error and speaks_json:
                body = [{"error": EVIL, "hint": EVIL, "code": "UsageError"}]
            elif self.path in _STREAMS:
                body = _STREAMS[self.path]
            else:
                body = [_ANSWERS.get(self.path.partition("?")[0], {"status": EVIL, "error": ""})]
            content = "\n".join(map(json.dumps, body)).encode()
            if is_error and not speaks_json:
                content = EVIL.encode()
            self.send_response(500 if is_error else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET

    with served_by(Handler) as port:
        yield port


_MODEL = {
    "name": EVIL, "model": EVIL, "digest": EVIL * 2, "size": 5, "size_vram": 2, "context_length": 9,
    "expires_at": "2030-01-01T00:00:00Z", "modified_at": "2030-01-01T00:00:00Z",
    "details": {"parameter_size": EVIL, "quantization_level": EVIL, "family": EVIL,
                "context_length": 9, "parent_model": EVIL, "format": EVIL, "families": [EVIL]},
    "capabilities": [EVIL],
}  # fmt: skip
_LOADING = {"model": EVIL, "status": EVIL, "completed": 1, "total": 2, "seconds_left": 3.0}
_ANSWERS = {
    "/api/version": {"version": EVIL},
    "/api/ps": {"models": [_MODEL]},
    "/api/tags": {"models": [_MODEL]},
    "/api/show": {"modelfile": EVIL, "parameters": EVIL, "template": EVIL, "system": EVIL,
                  "license": EVIL, "details": _MODEL["details"], "model_info": {EVIL: EVIL},
                  "capabilities": [EVIL]},
    "/api/gptoss/status": {"server_version": EVIL, "pid": 1, "uptime_s": 9.0, "gpus": [],
                           "models_dir": EVIL, "loading": [_LOADING]},
    "/api/gptoss/fits": {"models": []},
    "/api/gptoss/inspect": {
        "n_tokens": 3,
        "n_answer_tokens": 0,
        "messages": [
            {"author": EVIL, "channel": EVIL, "recipient": EVIL, "content_type": EVIL,
             "text": EVIL, "tokens": [1], "is_answer": False, "is_dropped": False},
        ],
    },
}  # fmt: skip
_CALLS = [
    {"id": EVIL, "function": {"index": 0, "name": EVIL, "arguments": {EVIL: EVIL}}},
    {"id": "2", "function": {"index": 1, "name": "sh", "arguments": {"cmd": EVIL}}},
]


def _frame(content: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"model": EVIL, "created_at": EVIL, "message": message, "done": False}


_STREAMS = {
    "/api/chat": [
        _frame("", thinking=EVIL),
        _frame(f"# {EVIL}\n\n{EVIL}\n", tool_calls=_CALLS),
        _frame("") | {"done": True, "done_reason": EVIL},
    ],
    "/api/gptoss/load": [_LOADING, _LOADING | {"total": 0}],
}


def write_gguf(path: Path, keys: list[tuple[str, str]], tensor: str = "") -> Path:
    """Write a GGUF of text keys, with one tensor of nine dimensions if it has a name."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    body = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in keys)
    if tensor:
        body += text(tensor) + struct.pack("<I9QIQ", 9, *[1] * 9, 0, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, int(bool(tensor)), len(keys)) + body)
    return path
