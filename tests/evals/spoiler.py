"""A server between `gptoss eval` and a real one, which spoils answers on purpose."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.threaded_server import QuietHandler, served_by

Spoil = Callable[[dict[str, Any]], None]


@contextmanager
def spoiled(url: str, spoil: Spoil) -> Iterator[int]:
    """Yield the port of a server that passes requests on to `url`, and answers back, spoiled."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self._pass_on(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._pass_on(body)

        def _pass_on(self, body: dict[str, Any] | None) -> None:
            kept = ("authorization", "content-type", "user-agent")
            headers = {n: v for n, v in self.headers.items() if n.lower() in kept}
            got = httpx.request(
                self.command, url + self.path, json=body, headers=headers, timeout=300
            )
            content = got.content
            is_chat = body is not None and "messages" in body
            if got.is_success and is_chat and "stream" not in body:
                changed = got.json()
                spoil(changed)
                content = json.dumps(changed).encode()
            self.send_response_only(got.status_code)
            self.send_header("server", got.headers["server"])
            self.send_header("content-type", got.headers["content-type"])
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with served_by(Handler) as port:
        yield port
