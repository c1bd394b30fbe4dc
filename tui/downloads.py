"""Downloads of models by the server, which last while the chat watches."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from rich.filesize import decimal

from gptoss_local.base.errors import GptOssError
from tui.server import ChatServer

_WINDOW_S = 20.0  # of the speed


class Download:
    def __init__(self, server: ChatServer, name: str) -> None:
        self.name = name
        self.n_done_bytes = self.n_bytes = 0  # of earlier downloads, too; until they are known
        self.error: GptOssError | None = None  # also if it was cancelled
        self.is_here = False
        self._seen: deque[tuple[float, int]] = deque()  # when, bytes
        self.task = asyncio.create_task(self._run(server))

    @property
    def is_running(self) -> bool:
        return not self.task.done()

    def cancel(self) -> None:
        self.task.cancel()

    def observe(self, n_done_bytes: int, n_bytes: int, now_s: float) -> None:
        self.n_done_bytes, self.n_bytes = n_done_bytes, n_bytes
        self._seen.append((now_s, n_done_bytes))
        while now_s - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()

    @property
    def bytes_s(self) -> float:
        """Return recent bytes a second; 0.0 while the rate is not known."""
        (start_s, first), (end_s, last) = self._seen[0], self._seen[-1]
        return max(0.0, (last - first) / (end_s - start_s)) if end_s > start_s else 0.0

    def progress_text(self) -> str:
        if not self.n_bytes:
            return "asking the hub"
        parts = [f"{decimal(self.n_done_bytes)} of {decimal(self.n_bytes)}"]
        if rate := self.bytes_s:
            left_s = (self.n_bytes - self.n_done_bytes) / rate
            parts += [f"{decimal(round(rate))}/s", f"{_duration(left_s)} left"]
        return " · ".join(parts)

    async def _run(self, server: ChatServer) -> None:
        try:
            async with aclosing(server.pull(self.name)) as lines:
                async for line in lines:
                    if line.total:
                        self.observe(line.completed, line.total, time.monotonic())
            self.is_here = True
        except GptOssError as error:
            self.error = error


class Downloads:
    """All downloads of one chat by model; `on_end` is called after each."""

    def __init__(self, server: ChatServer, on_end: Callable[[Download], None]) -> None:
        self._server = server
        self._on_end = on_end
        self._by_name: dict[str, Download] = {}

    def running(self, name: str) -> Download | None:
        found = self._by_name.get(name)
        return found if found is not None and found.is_running else None

    def start(self, name: str) -> Download:
        if (known := self.running(name)) is not None:
            return known
        download = self._by_name[name] = Download(self._server, name)
        download.task.add_done_callback(lambda _: self._on_end(download))
        return download

    def close(self) -> None:
        for download in self._by_name.values():
            download.cancel()


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
