"""The SDK's transports with limits: a program's pipes, streamable HTTP, SSE.

The SDK keeps any line of a program in memory, and any JSON of an address. Here both end at
`MAX_MESSAGE_BYTES`, and a server that floods us is ended.

The SDK also refuses a whole list of tools if one of them is wrong, so lists are repaired first: the
description says which arguments cannot be declared. Schemas of results are dropped, as the model
can read any result. A block of a result that the SDK does not know becomes a note, and the messages
of a batch are taken one by one. The SDK begins a session with its newest version of the protocol
alone; a server that refuses is asked again with those that it offers, or with older ones.
"""

import codecs
import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from gptoss_local.talk.tools.mcp.config import Entry, Launch
from gptoss_local.talk.tools.mcp.log import ServerLog

if TYPE_CHECKING:
    import httpx2
    from mcp.client import Transport
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

MAX_MESSAGE_BYTES = 16 * 2**20  # PERF: the SDK takes 2 s of CPU time for one of a program
MARK = "GPTOSS_MCP_SERVER"
"""A variable that marks the processes of a server, also those in sessions of their own."""

_WINDOW_S = 10.0
_MAX_IN_WINDOW = 10_000  # messages; each costs about 0.1 ms
_MAX_BYTES_IN_WINDOW = 8 * MAX_MESSAGE_BYTES
_LOG_END_S = 0.5  # a process of another user may keep it open
_ENCODING = "gptoss_mcp"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_on_bytes_fault: ContextVar[Callable[[str], None]] = ContextVar("on_bytes_fault")


@dataclass(frozen=True)
class Link:
    """The way to a server.

    Attributes:
        log: Gets the stderr of a program, and refusals of an address.
        mark: The value of the variable `MARK` of its processes.
        on_fault: Gets the reason why the connection is over.
    """

    entry: Entry
    launch: Launch
    folder: Path
    log: ServerLog
    mark: str
    on_fault: Callable[[str], None]

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["TransportStreams", None]:
        async with self._transport() as (read, write):
            beginning = _Beginning(write)
            yield _Watched(read, self, beginning), beginning

    def _transport(self) -> "Transport":
        _silence_sdk()
        if not self.entry.url:
            return _stdio(self)
        if not self.entry.is_sse:
            return _streamable_http(self)
        from mcp.client.sse import sse_client

        def make(
            headers: dict[str, str] | None = None,
            timeout: "httpx2.Timeout | None" = None,
            auth: "httpx2.Auth | None" = None,
        ) -> "httpx2.AsyncClient":
            return _http_client(self)

        return sse_client(self.launch.url, httpx_client_factory=make)


class _Watched:
    """The read stream of a transport: reports its end and floods, and repairs lists of tools."""

    def __init__(
        self, stream: "ReadStream[SessionMessage | Exception]", link: Link, beginning: "_Beginning"
    ) -> None:
        self._stream, self._link, self._beginning = stream, link, beginning
        self._rate = _Rate(_MAX_IN_WINDOW)
        self._batch: deque[SessionMessage] = deque()

    async def receive(self) -> "SessionMessage | Exception":
        import anyio
        from mcp_types import JSONRPCError, JSONRPCResponse

        try:
            item = self._batch.popleft() if self._batch else await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._link.on_fault("")
            raise
        if isinstance(item, Exception) and (messages := _batch_of(item)):
            item, *rest = messages
            self._batch += rest
        if isinstance(item, Exception):
            self._link.log.write(f"(not a message of MCP) {_beginning_of(item)}")
        elif isinstance(item.message, JSONRPCResponse):
            for note in repair_list(item.message.result):
                self._link.log.write(note)
            if isinstance(blocks := item.message.result.get("content"), list):
                item.message.result["content"] = list(map(_readable, blocks))
        elif isinstance(item.message, JSONRPCError) and await self._beginning.is_tried_again(
            item.message
        ):
            return await self.receive()
        if self._rate.is_too_high(1):
            self._link.on_fault("sent more messages than can be read")
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Beginning:
    """The write stream of a transport, which begins a session with each version that may do."""

    def __init__(self, stream: "WriteStream[SessionMessage]") -> None:
        self._stream = stream
        self._sent: SessionMessage | None = None
        self._versions: list[str] | None = None  # that are left; None before the first refusal
        self._reason: ErrorData | None = None

    async def send(self, item: "SessionMessage", /) -> None:
        if getattr(item.message, "method", "") == "initialize":
            self._sent, self._versions = item, None
        await self._stream.send(item)

    async def is_tried_again(self, refusal: "JSONRPCError") -> bool:
        """Try the next version; after the last one, the refusal gets the reason of the first."""
        from mcp.shared.message import SessionMessage

        if self._sent is None or refusal.id != (request := cast("Any", self._sent.message)).id:
            return False
        if self._versions is None:
            self._reason, self._versions = refusal.error, _other_versions(refusal.error)
        if not self._versions:
            refusal.error = cast("ErrorData", self._reason)
            return False
        params = request.params | {"protocolVersion": self._versions.pop()}
        again = request.model_copy(update={"params": params})
        await self._stream.send(SessionMessage(again, self._sent.metadata))
        return True

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> "_Beginning":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _other_versions(error: "ErrorData") -> list[str]:
    """Return the versions to try after a refusal of the newest, the best one last.

    What a server offers is in the error's data. A status of 400 has neither data nor a reason.
    """
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

    known = HANDSHAKE_PROTOCOL_VERSIONS[:-1]
    offered = error.data.get("supported") if isinstance(error.data, dict) else None
    if not isinstance(offered, list):
        return list(known)
    if any(version in MODERN_PROTOCOL_VERSIONS for version in offered):
        return []  # the SDK's own affair
    return [version for version in known if version in offered]


class _Rate:
    """Tells whether more arrives within a few seconds than any server should send."""

    def __init__(self, most: int) -> None:
        self._most, self._n, self._since_s = most, 0, time.monotonic()

    def is_too_high(self, n: int) -> bool:
        now_s = time.monotonic()
        if now_s - self._since_s > _WINDOW_S:
            self._n, self._since_s = 0, now_s
        self._n += n
        return self._n > self._most


class _Decoder(codecs.IncrementalDecoder):
    """UTF-8 up to a fault: a line that is too long, or a flood. Invalid UTF-8 becomes U+FFFD.

    A codec is the only place where the SDK shows the bytes of a program before it gathers them.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._on_fault = _on_bytes_fault.get()
        self._rate = _Rate(_MAX_BYTES_IN_WINDOW)
        self._n_bytes = 0  # of the last line
        self._is_over = False

    def decode(self, data: Any, final: bool = False) -> str:
        at = data.rfind(b"\n")
        self._n_bytes = len(data) - at - 1 if at >= 0 else self._n_bytes + len(data)
        if not self._is_over and self._n_bytes > MAX_MESSAGE_BYTES:
            self._end(f"sent a message of more than {MAX_MESSAGE_BYTES // 2**20} MiB")
        if not self._is_over and self._rate.is_too_high(len(data)):
            self._end("sent more than can be read")
        return "" if self._is_over else self._decoder.decode(data, final)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._on_fault(reason)


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != _ENCODING:
        return None
    utf8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf8.encode, utf8.decode, incrementaldecoder=_Decoder, name=name)


codecs.register(_codec)


@asynccontextmanager
async def _stdio(link: Link) -> AsyncGenerator["TransportStreams", None]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    # The SDK adds PATH, HOME and a few others of ours, among which there are no keys.
    parameters = StdioServerParameters(
        command=link.launch.command[0],
        args=link.launch.command[1:],
        env=link.launch.env | {MARK: link.mark},
        cwd=link.folder,
        encoding=_ENCODING,
        encoding_error_handler="replace",
    )
    _on_bytes_fault.set(link.on_fault)
    read_fd, write_fd = os.pipe()
    reader = threading.Thread(target=link.log.copy, args=(read_fd,), daemon=True)
    reader.start()
    stderr = os.fdopen(write_fd, "w")
    try:
        async with contextlib.AsyncExitStack() as stack:
            try:
                streams = await stack.enter_async_context(stdio_client(parameters, stderr))
            finally:
                stderr.close()  # the program has it now, or there is no program
            yield streams
    finally:
        end_survivors(link.mark)
        reader.join(_LOG_END_S)  # for the last words


@asynccontextmanager
async def _streamable_http(link: Link) -> AsyncGenerator["TransportStreams", None]:
    from mcp.client.streamable_http import streamable_http_client

    async with (
        _http_client(link) as client,
        streamable_http_client(
            link.launch.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


def _http_client(link: Link) -> "httpx2.AsyncClient":
    """Return a client that bounds answers, and logs those with an error status."""
    import httpx2

    from gptoss_local.bounded_answers import UNCOMPRESSED, bound

    async def look(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            link.log.write(f"answered {response.status_code} {response.reason_phrase}")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        bound(response, math.inf if is_stream else MAX_MESSAGE_BYTES)

    return httpx2.AsyncClient(
        headers=UNCOMPRESSED | link.launch.headers,
        timeout=httpx2.Timeout(30, read=300),  # as the SDK's own client
        event_hooks={"response": [look]},
        trust_env=urlsplit(link.launch.url).hostname not in _LOCAL,  # no proxy reaches these
    )


def _silence_sdk() -> None:
    """Keep the SDK's records, which quote servers, from the terminal and the log."""
    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
            logger.propagate = False


def _batch_of(error: Exception) -> "list[SessionMessage]":
    """Return the messages of a batch, which is not part of the protocol any more."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return []
    try:
        sent = error.errors(include_url=False)[0]["input"]
        sent = msgspec.json.decode(sent) if isinstance(sent, str | bytes) else sent
        if not isinstance(sent, list):
            return []
        return [SessionMessage(jsonrpc_message_adapter.validate_python(each)) for each in sent]
    except (ValidationError, msgspec.DecodeError):
        return []


def _readable(block: Any) -> Any:
    """Return a block of a result; one of an unknown kind, or without its fields, as a note."""
    kind = block.get("type") if isinstance(block, dict) else None
    needed = _FIELDS.get(kind) if isinstance(kind, str) else None
    if needed and all(isinstance(block.get(name), type_) for name, type_ in needed.items()):
        return block
    text = block.get("text") if isinstance(block, dict) else block
    told = text if isinstance(text, str) else f"[{kind or 'content of no kind'}]"
    return {"type": "text", "text": told}


def _beginning_of(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return repr(error.errors(include_url=False)[0]["input"])[:200]
    return str(error)[:200]


def end_survivors(mark: str) -> None:
    """Kill the processes that a server left: `npx` may end before its `node`, a browser after both.

    PERF: 20 to 50 ms where there are some hundred processes.
    """
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                process.kill()


_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
_TEXTS = ("title", "description")
MAX_SCHEMA_BYTES = 16_000  # about 4,000 tokens
_NO_OBJECT = "[Which arguments it takes is not known: their schema is not one of an object.]"
_TOO_LONG = "[Which arguments it takes is not known: their schema is too long.]"


def repair_list(result: dict[str, Any]) -> list[str]:
    """Change the result of `tools/list` in place; any other one stays as it is.

    Returns:
        Notes on the tools that were left out, for the log.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return []
    named = [each for each in tools if isinstance(each, dict) and isinstance(each.get("name"), str)]
    result["tools"] = [_repaired(tool) for tool in named]
    n_others = len(tools) - len(named)
    return [f"(left out {n_others} tools without a name)"] if n_others else []


def _repaired(tool: dict[str, Any]) -> dict[str, Any]:
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
