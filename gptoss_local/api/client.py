"""Small clients of our own server: `Client` for the command line, `AsyncClient` for the chat.

They translate foreign errors: no answer, another server on the port, an error body.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx2
import msgspec

from gptoss_local.api.answers import ChatFrame, ErrorFrame
from gptoss_local.api.gptoss import Lan, PageLink, ServerStatus
from gptoss_local.api.models import RunningModel, RunningModels
from gptoss_local.base.errors import (
    ContextOverflowError,
    GptOssError,
    ModelNotFoundError,
    ServerUnavailableError,
    UnauthorizedError,
    error_by_name,
)
from gptoss_local.base.events import ChatEvent
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import open_private

T = TypeVar("T")

_START_TIMEOUT_S = 120.0  # of one that lives: at the first start, Windows scans each module
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 5.0
_TIMEOUT = httpx2.Timeout(None, connect=30)  # a busy machine keeps our event loop waiting, too
_MAX_LOG_BYTES = 4 << 20
_OTHER_PORT = "Stop it, or choose another port: set GPTOSS_PORT=11435"


class Client:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = httpx2.Client(**_options(settings))

    def is_running(self) -> bool:
        """Return whether our server answers; ServerUnavailableError: another program does."""
        try:
            with self._http.stream("GET", "/api/version", timeout=_PROBE_TIMEOUT_S) as response:
                server = response.headers.get("server", "")  # another one may send anything
        except httpx2.ReadTimeout as error:
            raise ServerUnavailableError(
                f"a program listens at {self._settings.url} but does not answer", hint=_OTHER_PORT
            ) from error
        except httpx2.TransportError:
            return False
        if not server.startswith("gptoss/"):
            raise ServerUnavailableError(
                f"another server (Ollama?) answers on {self._settings.url}",
                hint=_OTHER_PORT,
            )
        return True

    def ensure_running(self) -> None:
        """Start a server that outlives this process, unless one answers.

        Raises ServerUnavailableError if it did not come up.
        """
        if self.is_running():
            return
        log_path = self._settings.server_log
        with _open_log(log_path) as log:
            log_end = log.tell()
            process = _spawn_server(self._settings, log.fileno())
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not self.is_running():
            # Address taken: another process is starting a server at the same time; wait for that.
            has_failed = process.poll() not in (None, ServerUnavailableError.exit_code)
            if has_failed or time.monotonic() > deadline_s:
                raise ServerUnavailableError(
                    f"the server did not start{_cause(log_path, log_end)}",
                    hint=f"See {log_path}, or run: gptoss serve",
                )
            time.sleep(_POLL_S)

    def running_models(self) -> list[RunningModel]:
        return self._ask("GET", "/api/ps", RunningModels).models

    def status(self) -> ServerStatus:
        return self._ask("GET", "/api/gptoss/status", ServerStatus)

    def unload(self, model: str) -> None:
        self.post("/api/generate", {"model": model, "keep_alive": 0})

    def page_link(self) -> str:
        """Return a new link to the web page, which works once."""
        return self._settings.url + self._ask("POST", "/api/gptoss/links", PageLink, {}).path

    def open_lan(self, scheme: str) -> Lan:
        """Let the local network in, and return a new link for one phone."""
        return self._ask("POST", "/api/gptoss/lan", Lan, {"scheme": scheme})

    def post(self, path: str, body: dict[str, Any]) -> str:
        """Return the server's words of what had no effect, or ""."""
        with self._asking():
            response = self._http.post(path, json=body)
            _checked(response)
            return response.headers.get("X-Gptoss-Warning", "")

    def upload(self, path: Path) -> str:
        """Upload a file and return its digest."""
        with path.open("rb") as file, self._asking():
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            file.seek(0)
            _checked(self._http.post(f"/api/blobs/{digest}", content=file))
        return digest

    def delete(self, path: str, body: dict[str, Any]) -> None:
        with self._asking():
            _checked(self._http.request("DELETE", path, json=body))

    def stream_chat(self, body: dict[str, Any]) -> Generator[ChatEvent, None, None]:
        """Yield the events of `POST /api/chat`; closing the iterator stops the answer."""
        with closing(self.stream("/api/chat", body, ChatFrame)) as frames:
            for frame in frames:
                yield from frame.events()

    def stream(
        self, path: str, body: dict[str, Any], line_type: type[T]
    ) -> Generator[T, None, None]:
        """Yield the lines of a POST; closing the iterator ends the server's work on it.

        Raises the server's error, also if it comes as a line.
        """
        with self._asking(), self._http.stream("POST", path, json=body) as response:
            if response.is_error:
                response.read()
                _checked(response)
            for line in response.iter_lines():
                yield _frame(line, line_type)

    def _ask(
        self, method: str, path: str, answer_type: type[T], body: dict[str, Any] | None = None
    ) -> T:
        with self._asking():
            return _decoded(self._http.request(method, path, json=body), answer_type)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Translate errors; name a server with other models than this user's as the reason."""
        try:
            with _translated(self._settings):
                yield
        except (ModelNotFoundError, UnauthorizedError) as error:
            if owner_key(self._settings):
                raise
            raise type(error)(
                f"{error.message}: another user, or another GPTOSS_HOME, started the server on "
                f"{self._settings.url}",
                hint=f"Set its GPTOSS_API_KEY. {_OTHER_PORT}",
            ) from error


class AsyncClient:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = httpx2.AsyncClient(**_options(settings))

    async def get(self, path: str, answer_type: type[T]) -> T:
        with _translated(self._settings):
            return _decoded(await self._http.get(path), answer_type)

    async def post(self, path: str, body: dict[str, Any], answer_type: type[T]) -> T:
        with _translated(self._settings):
            return _decoded(await self._http.post(path, json=body), answer_type)

    async def stream_chat(
        self, body: dict[str, Any], on_begun: Callable[[str], None] = lambda _: None
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of `POST /api/chat`; closing the iterator stops the answer."""
        async with aclosing(self.stream("/api/chat", body, ChatFrame, on_begun)) as frames:
            async for frame in frames:
                for event in frame.events():
                    yield event

    async def stream(
        self,
        path: str,
        body: dict[str, Any],
        line_type: type[T],
        on_begun: Callable[[str], None] = lambda _: None,
    ) -> AsyncGenerator[T, None]:
        """Yield the frames of an endpoint; closing the iterator leaves it.

        `on_begun` gets the id of the request, by which others can name it.
        """
        with _translated(self._settings):
            async with self._http.stream("POST", path, json=body) as response:
                if response.is_error:
                    await response.aread()
                    _checked(response)
                on_begun(response.headers.get("x-request-id", ""))
                async for line in response.aiter_lines():
                    yield _frame(line, line_type)

    async def close(self) -> None:
        await self._http.aclose()


def owner_key(settings: Settings) -> str:
    """Return this account's key: the setting, or its server's secret."""
    if settings.api_key:
        return settings.api_key
    with suppress(OSError):
        return settings.owner_secret_path.read_text(encoding="ascii")
    return ""


class _OwnerAuth(httpx2.Auth):
    """Sends the current key: a server that was restarted meanwhile has another secret."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        if key := owner_key(self._settings):
            request.headers["Authorization"] = f"Bearer {key}"
        yield request


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "base_url": settings.url,
        "auth": _OwnerAuth(settings),
        "timeout": _TIMEOUT,
        "trust_env": False,  # a proxy for the internet must not get requests for this machine
        "verify": False,  # there is no TLS, and reading the certificates takes 50 ms
    }


def _frame(line: str, line_type: type[T]) -> T:
    with suppress(msgspec.ValidationError):
        raise _error(msgspec.json.decode(line, type=ErrorFrame))
    return msgspec.json.decode(line, type=line_type)


def _open_log(path: Path) -> BinaryIO:
    """Open the log to append; a large one first becomes `server.log.1`."""
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        with suppress(OSError):  # Windows: a server that ends just now still has it open
            path.replace(path.with_name(f"{path.name}.1"))
    return open_private(path)


def _cause(log: Path, start: int) -> str:
    """Return ": " and the last error that a server logged after a position; empty if none."""
    said = log.read_bytes()[start:].decode(errors="replace")
    errors = re.findall(r"^gptoss: (.+)$", said, re.MULTILINE)
    return f": {errors[-1]}" if errors else ""


def _spawn_server(settings: Settings, log_fd: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"GPTOSS_HOST": settings.host, "GPTOSS_PORT": str(settings.port)}
    command = [sys.executable, "-P", "-m", "gptoss_local", "serve"]
    if sys.platform == "win32":
        # Not DETACHED_PROCESS: its engine would then open a console window.
        flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        flags = 0
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        start_new_session=True,  # Ctrl-C and a closed terminal do not reach it
        creationflags=flags,
    )


@contextmanager
def _translated(settings: Settings) -> Iterator[None]:
    try:
        yield
    except httpx2.ConnectError as error:
        raise ServerUnavailableError(
            f"no server answers on {settings.url}", hint="Start one: gptoss serve"
        ) from error
    except httpx2.TransportError as error:
        raise ServerUnavailableError(
            f"the connection to {settings.url} broke before the answer was complete",
            hint=f"See {settings.server_log}",
        ) from error
    except msgspec.DecodeError as error:
        raise ServerUnavailableError(
            f"the server at {settings.url} is of another version: {error}",
            hint="Restart it: gptoss stop",
        ) from error


def _decoded(response: httpx2.Response, answer_type: type[T]) -> T:
    return msgspec.json.decode(_checked(response), type=answer_type)


def _checked(response: httpx2.Response) -> bytes:
    if response.is_success:
        return response.content
    try:
        error = msgspec.json.decode(response.content, type=ErrorFrame)
    except msgspec.DecodeError:
        error = ErrorFrame(f"{response.status_code} {response.text[:200]}")
    raise _error(error)


def _error(frame: ErrorFrame) -> GptOssError:
    error = error_by_name(frame.code, frame.error, hint=frame.hint)
    if isinstance(error, ContextOverflowError):
        error.n_prompt = frame.prompt_tokens or None
        error.n_ctx = frame.context_length
        error.n_ctx_max = frame.max_context_length
    return error
