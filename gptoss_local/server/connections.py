"""Bounds connections before an API key is asked for: descriptors, time, memory, lines of log."""

import asyncio
import ctypes
import logging
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gptoss_local.base.settings import Settings
from gptoss_local.machine.plan.options import most_answers
from gptoss_local.server.origin import is_loopback

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

_log = logging.getLogger("gptoss.connections")

N_PENDING = 256
"""Connections that wait in the system; asyncio accepts its `backlog` of them at once."""

_HEADERS_S = 30.0
_ANSWERED_S = 1.0
_MAX_HEADER_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024  # at once
_M_MMAP_THRESHOLD = -3  # malloc.h
_QUIET_S = 60.0
_TOO_LARGE = (
    b"431 Request Header Fields Too Large",
    b"the request's headers are larger than 64 KiB",
)


class BoundedProtocol(HttpToolsProtocol):  # noqa: PLR0904 - most are uvicorn's callbacks
    """Closes connections that send no whole request header in time, or too large a one.

    At the limit, a new connection replaces some that wait for their clients: for a header, the rest
    of a body, or reading. First go callers with the least right, then the network's or this
    machine's, whichever has more than half, then the address with the most, then the longest
    wait; a connection without any request counts as older. If none waits, the new one is served
    only if it is the owner's. One subclass per server, in one event loop.

    Attributes:
        right: Of the last caller: 0 without a key, 1 for a user, 2 for the owner.
    """

    max_connections: ClassVar[int]

    right = 0
    _address = ""  # empty for this machine
    _since_s = 0.0  # when the client was last heard of, or answered
    _is_spare = False
    _timer: asyncio.TimerHandle | None = None  # while a header is due
    _n_unread_bytes = 0  # since the last whole header or part of a body
    _is_header_too_large = False
    _has_headers = False

    def __init_subclass__(cls, *, max_connections: int) -> None:
        cls.max_connections = max_connections

    @property
    def has_place(self) -> bool:
        return not self._is_spare or len(self.connections) <= self.max_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.enter(transport)

    def enter(self, transport: asyncio.Transport) -> None:
        """Count a connection, also one whose TLS handshake has only begun."""
        self.transport = transport
        vars(transport)["max_size"] = _READ_BYTES  # asyncio's, which would be 256 KiB
        host = (transport.get_extra_info("peername") or ("",))[0]
        self._address = "" if is_loopback(host) else host
        self.connections.add(self)
        self._expect_header(_HEADERS_S)
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def leave(self) -> None:
        self._stop_timer()
        self.connections.discard(self)

    def abort(self) -> None:
        """End it at once, as if its client had left; waiting data is dropped."""
        self.leave()
        self.transport.abort()

    def pause_writing(self) -> None:
        self._since_s = self.loop.time()
        super().pause_writing()

    def data_received(self, data: bytes) -> None:
        self._since_s = self.loop.time()
        self._n_unread_bytes += len(data)
        super().data_received(data)
        if self._n_unread_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(*_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._has_headers = False
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_headers:  # a trailer is no header: RFC 9110, section 6.5.1
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        n_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if n_bytes > _MAX_HEADER_BYTES:
            self._is_header_too_large = True
            raise ValueError  # the parser stops, and uvicorn sends 400
        self._has_headers, self._n_unread_bytes = True, 0
        self._stop_timer()
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self._end_by_closing()

    def _end_by_closing(self) -> None:
        """Send the answer of any length without chunks, which HTTP/1.0 does not know."""
        cycle, send = self.cycle, self.cycle.send

        async def send_plain(message: "ASGISendEvent") -> None:
            if message["type"] == "http.response.body":
                cycle.expected_content_length = len(message["body"])  # uvicorn counts down
            await send(message)

        cycle.chunked_encoding = False
        vars(cycle)["send"] = send_plain

    def on_body(self, body: bytes) -> None:
        self._n_unread_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._expect_header(self.timeout_keep_alive)

    def send_400_response(self, msg: str) -> None:
        if self._is_header_too_large:
            self._refuse(*_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: without WebSockets, the request is served as any other."""

    def _refuse(self, status: bytes, text: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (status, len(text), text)
        )
        self.transport.close()

    @property
    def is_waiting(self) -> bool:
        """Return whether it is the client's turn: to send something, or to read."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.flow.write_paused:
            return True
        return cycle.more_body and not (cycle.response_started or self.pipeline)

    def _make_room(self) -> None:
        """Close connections that wait: a few at once, as looking for them takes time."""
        protocols: list[BoundedProtocol] = [each for each in self.connections if each is not self]  # type: ignore[misc]
        n_of = Counter(each._address for each in protocols)
        is_networks = 2 * (len(protocols) - n_of[""]) > self.max_connections
        n_of[""] = 0

        def place(each: BoundedProtocol) -> tuple[int, bool, int, float]:
            is_kept = bool(each._address) != is_networks
            bonus_s = _ANSWERED_S if each.cycle is not None else 0.0
            return each.right, is_kept, -n_of[each._address], each._since_s + bonus_s

        waiting = sorted((each for each in protocols if each.is_waiting), key=place)
        for each in waiting[: 1 + self.max_connections // 64]:
            each.abort()
        n_spare = len(self.connections) - self.max_connections
        self._is_spare = n_spare > 0
        if n_spare > _n_spare(self.max_connections):
            _log.warning("all %d connections are busy, so others get 503", self.max_connections)
            self._refuse(b"503 Service Unavailable", b"server busy, please try again")

    def _expect_header(self, within_s: float) -> None:
        self._stop_timer()
        self._since_s = self.loop.time()
        self._timer = self.loop.call_later(within_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class OncePerMinute(logging.Filter):
    """Lets a line of a log through once a minute, and says then how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, tuple[float, int]] = {}  # when, and how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, str(record.msg).partition("\n")[0], _origin(record))
        now_s = time.monotonic()
        shown_s, n_left_out = self._last.get(key, (-_QUIET_S, 0))
        if now_s - shown_s < _QUIET_S:
            self._last[key] = (shown_s, n_left_out + 1)
            return False
        self._last[key] = (now_s, 0)
        if n_left_out:
            record.msg = f"{record.msg} ({n_left_out} more like this since the last one)"
        return True


def _origin(record: logging.LogRecord) -> object:
    if not record.exc_info:
        return None
    kind, _, trace = record.exc_info
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    return kind, *places[-1:]


def connection_limits(settings: Settings) -> tuple[int, int]:
    """Return how many connections to allow, and to let wait; raise the limit of descriptors."""
    n_wanted = max(1024, 2 * (most_answers(settings) + settings.max_queue) + 256)
    n_files = _raise_file_limit(n_wanted + _n_spare(n_wanted) + 256)
    if n_files is None:
        return n_wanted, 64
    backlog, n_others = min(64, n_files // 8), min(128, n_files // 2)
    n_left = n_files - backlog - n_others
    return min(n_wanted, n_left - _n_spare(n_left)), backlog


def _n_spare(n_connections: int) -> int:
    """Return how many more to accept until their headers show the owner's."""
    return n_connections // 16


def return_memory() -> None:
    """Give the memory of bodies back to the system once they are gone.

    glibc maps ever larger buffers into its heap, where one small object keeps all below it.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _READ_BYTES // 2)


def quieten_logs() -> None:
    once = OncePerMinute()
    for name in ("asyncio", "uvicorn.error", _log.name):
        logging.getLogger(name).addFilter(once)


def _raise_file_limit(n_wanted: int) -> int | None:
    if sys.platform == "win32":  # which has no limit that matters here
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_most = n_wanted if hard == resource.RLIM_INFINITY else min(hard, n_wanted)
    if soft == resource.RLIM_INFINITY:
        return None
    if soft < n_most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_most, hard))
    return max(soft, n_most)
