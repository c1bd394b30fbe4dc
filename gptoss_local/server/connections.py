"""Bounds the resources that connections take: descriptors, time, memory, and lines of log.

All of it holds before a request is complete, so before an API key is asked for.
"""

import asyncio
import itertools
import logging
import sys
import time
import traceback
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gptoss_local.machine.plan.options import most_answers
from gptoss_local.settings import Settings

_log = logging.getLogger("gptoss.connections")

_HEADERS_S = 30.0
_MAX_HEADER_BYTES = 64 * 1024
_QUIET_S = 60.0
_TOO_LARGE = (
    b"431 Request Header Fields Too Large",
    b"the request's headers are larger than 64 KiB",
)


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections that send no whole request header in time, or too large a one.

    After an answer, the next header must be complete within the time for idle connections. Where
    there are too many connections, a new one takes the place of the longest wait for a
    header, if possible of a connection without any request so far. If none waits, the new one
    gets 503. A subclass for each server. Thread: one event loop.
    """

    max_connections: ClassVar[int]

    _new: ClassVar[dict["BoundedProtocol", asyncio.TimerHandle]]
    """Those that have sent no whole header yet, the oldest first."""
    _idle: ClassVar[dict["BoundedProtocol", asyncio.TimerHandle]]
    """Those without an open request, the longest wait first."""

    def __init_subclass__(cls, *, max_connections: int) -> None:
        cls.max_connections, cls._new, cls._idle = max_connections, {}, {}

    _n_header_bytes = 0
    _n_unparsed_bytes = 0  # at least; since the last whole part of a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections and not self._make_room():
            _log.warning("all %d connections are busy, so others get 503", self.max_connections)
            self._refuse(b"503 Service Unavailable", b"server busy, please try again")
            return
        self._new[self] = self.loop.call_later(_HEADERS_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._n_unparsed_bytes += len(data)
        super().data_received(data)
        if self._n_unparsed_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(*_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._n_header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_unparsed_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)
            self._idle[self] = timer

    def send_400_response(self, msg: str) -> None:
        if self._n_header_bytes > _MAX_HEADER_BYTES:
            self._refuse(*_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _count(self, n_bytes: int) -> None:
        self._n_unparsed_bytes = 0
        self._n_header_bytes += n_bytes
        if self._n_header_bytes > _MAX_HEADER_BYTES:
            raise ValueError("the header is too large")  # the parser stops, and uvicorn sends 400

    def _refuse(self, status: bytes, text: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (status, len(text), text)
        )
        self.transport.close()

    def _make_room(self) -> bool:
        """Close a connection that waits; return False if there is none."""
        waiting = next(itertools.chain(self._new, self._idle), None)
        if waiting is None:
            return False
        waiting._stop_waiting()
        waiting.transport.abort()
        self.connections.discard(waiting)  # it is gone with the loop's next turn
        return True

    def _stop_waiting(self) -> None:
        if timer := self._new.pop(self, None) or self._idle.pop(self, None):
            timer.cancel()


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
    """Return the type of a record's exception and the line that raised it; None without one."""
    if not record.exc_info:
        return None
    kind, _, trace = record.exc_info
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    return kind, *places[-1:]


def connection_limits(settings: Settings) -> tuple[int, int]:
    """Return how many connections there may be, and how many may wait to be accepted.

    Descriptors are left for the engines, files and downloads; the soft limit of them is raised as
    far as that is needed and allowed.
    """
    n_wanted = max(1024, 2 * (most_answers(settings) + settings.max_queue) + 256)
    n_files = _raise_file_limit(n_wanted + 256)
    if n_files is None:
        return n_wanted, 64
    backlog, n_others = min(64, n_files // 8), min(128, n_files // 2)
    return min(n_wanted, n_files - backlog - n_others), backlog


def quieten_logs() -> None:
    """Let lines that connections can cause into the log once a minute."""
    once = OncePerMinute()
    for name in ("asyncio", "uvicorn.error", _log.name):
        logging.getLogger(name).addFilter(once)


if sys.platform == "win32":

    def _raise_file_limit(n_wanted: int) -> int | None:
        """Return None: Windows has no limit that matters here."""
        return None

else:
    import resource

    def _raise_file_limit(n_wanted: int) -> int | None:
        """Return how many descriptors this process may have; None if that is not limited."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        n_most = n_wanted if hard == resource.RLIM_INFINITY else min(hard, n_wanted)
        if soft == resource.RLIM_INFINITY:
            return None
        if soft < n_most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (n_most, hard))
        return max(soft, n_most)
