"""Reads a server's messages: within limits, and repaired where the SDK would lose them.

The SDK would refuse a whole list for one wrong tool, and wait for an answer that it cannot read.
"""

import codecs
import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from gptoss_local.base.validation import lenient
from gptoss_local.base.whole_file import open_private
from gptoss_local.talk.tools.mcp.config import HIDDEN

MAX_MESSAGE_BYTES = 16 * 2**20  # PERF: 2 s of CPU time
NOT_MCP, REFUSED, NOT_RUN = -99_001, -99_002, -99_003
"""Codes of errors: an unreadable answer, an error status, an error status before the call ran."""
_WINDOW_S = 10.0
_MAX_IN_WINDOW = 10_000  # messages; each costs about 0.1 ms
_MAX_BYTES_IN_WINDOW = 8 * MAX_MESSAGE_BYTES
_MAX_QUOTED = 300  # characters
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}\b|"[^"\\]{1,100}")')
_REQUEST = re.compile(rb'"method"\s*:')
NO_MCP = "answered something that is not MCP"
_OF_ANSWERS = {"jsonrpc", "result", "error"}
_TEXTS = ("title", "description")
MAX_SCHEMA_BYTES = 16_000  # about 4,000 tokens
_NO_OBJECT = "[Which arguments it takes is not known: their schema is not one of an object.]"
_TOO_LONG = "[Which arguments it takes is not known: their schema is too long.]"
_ROTATE_BYTES = 2**20
_MAX_BYTES = 4 * 2**20  # of one start
_LAST_CHARACTERS = 300
_LAST_S = 5.0


class ServerLog:
    """Appends to `mcp-NAME.log`, which is replaced at 1 MiB, and hides `secrets`, longest first."""

    def __init__(self, folder: Path, name: str, secrets: Iterable[str]) -> None:
        self.path = folder / f"mcp-{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64]}.log"
        self._last, self._last_s = "", 0.0
        self._secrets = tuple(secrets)
        self._n_left = _MAX_BYTES
        with contextlib.suppress(OSError):  # servers work without a log, too
            if self.path.stat().st_size > _ROTATE_BYTES:
                self.path.replace(self.path.with_suffix(".old"))

    @property
    def last_words(self) -> str:
        """Return the last line if recent, often why a server ended; else empty."""
        return self._last if time.monotonic() - self._last_s < _LAST_S else ""

    @property
    def is_open(self) -> bool:
        return self._n_left > 0

    def hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def write(self, line: str) -> None:
        """Add a line. Past the limit of one start, only a note of that is added."""
        if not self.is_open:
            return
        clean = self.hide(line.rstrip())
        if clean.strip():
            self._last, self._last_s = clean.strip()[-_LAST_CHARACTERS:], time.monotonic()
        data = f"{clean}\n".encode(errors="replace")
        self._n_left -= len(data)
        if not self.is_open:
            data += b"(it wrote more, which is not kept)\n"
        with contextlib.suppress(OSError), open_private(self.path) as file:
            file.write(data)


class Inbox:
    """Takes all that a server sends; `log` gets the rest, `on_fault` why the connection is over."""

    def __init__(self, log: ServerLog, on_fault: Callable[[str], None]) -> None:
        self._log, self._on_fault = log, on_fault
        self.is_over = False
        self.asked: set[object] = set()
        """Ids without an answer, of a transport that does not tell whose an answer is."""
        self._n = self._n_bytes = 0
        self._since_s = time.monotonic()

    def read(self, data: bytes) -> list[JSONRPCMessage]:
        """Return the messages in a line, a body or an event, batches taken apart."""
        data = data.removeprefix(codecs.BOM_UTF8).strip()
        try:
            found = _decoded(data) if data else []
            n = len(found) if isinstance(found, list) else 1
        except (ValueError, RecursionError):
            found, n = _answers_in(data) or data.decode(errors="replace"), data.count(b"\n") + 1
        self._count(n, len(data))
        values = found if isinstance(found, list) else [found]
        each = (self._message(value, data) for value in values if not self.is_over)
        return [message for message in each if message]

    def _count(self, n: int, n_bytes: int) -> None:
        if (now_s := time.monotonic()) - self._since_s > _WINDOW_S:
            self._n, self._n_bytes, self._since_s = 0, 0, now_s
        self._n, self._n_bytes = self._n + n, self._n_bytes + n_bytes
        if self._n > _MAX_IN_WINDOW:
            self.end("sent more messages than can be read")
        if self._n_bytes > _MAX_BYTES_IN_WINDOW:
            self.end("sent more than can be read")

    def end(self, why: str) -> None:
        """Take nothing more; an empty reason says that the server has ended."""
        if not self.is_over:
            self.is_over = True
            self._on_fault(why)

    def _message(self, value: Any, data: bytes) -> JSONRPCMessage | None:
        is_answer = isinstance(value, dict) and "method" not in value
        if is_answer and (value.keys() & _OF_ANSWERS or value.keys() == {"id"}):
            value = {"id": self._id(value.get("id"))} | self._answer(value, data)
        try:
            message = {**value, "jsonrpc": "2.0"} if isinstance(value, dict) else value
            return jsonrpc_message_adapter.validate_python(message)
        except ValidationError:
            self._log.write(f"(not a message of MCP) {str(value)[:_MAX_QUOTED]!r}")
            return None

    def _id(self, given: Any) -> Any:
        """Return the id of an answer; one without is of the only request, if there is one."""
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if given is None and len(self.asked) == 1:
            (given,) = self.asked
        self.asked.discard(given)
        return given

    def _answer(self, value: dict[str, Any], data: bytes) -> dict[str, Any]:
        result, error = value.get("result"), value.get("error")
        if error is None and isinstance(result, dict):
            if isinstance(tools := result.get("tools"), list):
                result["tools"] = self._usable(tools)
            blocks = result.get("content", [])
            if isinstance(blocks, list) and result.keys() & {"content", "structuredContent"}:
                result["content"] = [{"type": "text", "text": _text_of(result, blocks)}]
                result["isError"] = bool(result.get("isError"))
                result.pop("structuredContent", None)
            if isinstance(blocks, list):
                return {"result": result}
        if isinstance(error, str):
            error = {"message": error}
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            code = error.get("code")
            is_theirs = type(code) is int and code != CONNECTION_CLOSED  # which the SDK makes
            return {"error": error | {"code": code if is_theirs else INTERNAL_ERROR}}
        return {"error": {"code": NOT_MCP, "message": f"{NO_MCP}: {quoted(data)}"}}

    def _usable(self, tools: list[Any]) -> list[dict[str, Any]]:
        """Drop entries that are not tools; the SDK would refuse the whole list."""
        named = [each for each in tools if isinstance(each, dict)]
        named = [each for each in named if isinstance(each.get("name"), str)]
        if n_others := len(tools) - len(named):
            self._log.write(f"(left out {n_others} tools without a name)")
        return [_repaired(tool) for tool in named]


def quoted(data: bytes) -> str:
    text = " ".join(data.decode(errors="replace").split())
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]} [cut]"


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(lenient(data))  # with NaN, too


def _answers_in(data: bytes) -> list[dict[str, Any]]:
    """Return an empty answer to each request that a broken text seems to answer."""
    start = re.search(rb"^\s*\{", data, re.MULTILINE)
    if start is None or b'"jsonrpc"' not in data or _REQUEST.search(data):  # lines of a log
        return []
    return [{"jsonrpc": "", "id": json.loads(id_)} for id_ in set(_ID.findall(data, start.end()))]


def _text_of(result: dict[str, Any], blocks: list[Any]) -> str:
    known = [block if isinstance(block, dict) else {"text": block} for block in blocks]
    parts = [_block_text(block) for block in known]
    has_text = any(block.get("type") == "text" for block in known)
    if (structured := result.get("structuredContent")) is not None and not has_text:
        parts.append(msgspec.json.encode(structured).decode())
    return "\n".join(parts)


def _block_text(block: dict[str, Any]) -> str:
    if block.get("type") == "resource" and isinstance(resource := block.get("resource"), dict):
        block = {"type": resource.get("uri"), "data": resource.get("blob"), **resource}
    for key in ("text", "uri") if not isinstance(block.get("data"), str) else ():
        if isinstance(block.get(key), str):
            return str(block[key])
    what = [str(block.get("type") or "content of no kind")]
    kind, data = block.get("mimeType"), block.get("data")
    if isinstance(kind, str) and isinstance(data, str):
        n_bytes = len(data) * 3 // 4
        what += [f"{n_bytes / 1000:.0f} kB" if n_bytes >= 1000 else f"{n_bytes} bytes", kind]
    return f"[{', '.join(what)}]"


def _repaired(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool without its schema of results, and with one that can be declared."""
    repaired = {key: tool[key] for key in _TEXTS if isinstance(tool.get(key), str)}
    schema: dict[str, Any] = tool.get("inputSchema") or {}
    note = "" if _is_of_object(schema) else _NO_OBJECT
    if not note and len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        note = _TOO_LONG
    if note:
        repaired["description"] = f"{note}\n{repaired.get('description', '')}".strip()
        schema = {}
    return {"name": tool["name"], **repaired, "inputSchema": {**schema, "type": "object"}}


def _is_of_object(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type", "object") == "object"
        and isinstance(schema.get("properties", {}), dict)
        and isinstance(schema.get("required", []), list)
    )
