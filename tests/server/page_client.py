"""A client of the page's endpoints, as the page is one: link, JSON, and the stream of changes."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from tests.conftest import PATIENCE_S, RunningServer, wait_until

Json = dict[str, Any]


class Heard:
    """The events that a listener got, and the texts that they make."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.turns: dict[int, Json] = {}
        self.gaps: list[Json] = []
        self.is_over = False

    def take(self, event: Json) -> None:
        self.events.append(event)
        kind = event.get("event")  # none: an error, which ends the stream
        if kind == "tree":
            self.turns = {turn["id"]: turn for turn in event["turns"]}
        elif kind == "turn":
            self.turns[event["turn"]["id"]] = event["turn"]
        elif kind == "text":
            turn = self.turns[event["turn_id"]]
            for name in ("content", "reasoning"):
                if event["at"][name] != len(turn[name]):
                    self.gaps.append(event)
                turn[name] += event[name]

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.events if event.get("event") == kind]

    def until(self, condition: Callable[["Heard"], object]) -> None:
        wait_until(lambda: condition(self))


class Page:
    """One tab."""

    def __init__(self, server: RunningServer) -> None:
        self.url = server.url
        self.http = httpx.Client(
            base_url=self.url, headers={"origin": self.url}, timeout=PATIENCE_S, trust_env=False
        )
        try:
            link = server.link().partition("#open=")[2]
            self.token = str(self.call("POST", "open", {"link": link})["token"])
        except BaseException:
            self.http.close()
            raise
        self.http.headers["x-gptoss-token"] = self.token

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def call(self, method: str, path: str, body: Json | None = None, status: int = 200) -> Json:
        reply = self.http.request(method, f"/api/gptoss/{path}", json=body)
        assert reply.status_code == status, reply.text
        return dict(reply.json())

    def new(self, **body: Any) -> int:
        return int(self.call("POST", "chats", {"model": "nano", "effort": "low", **body})["id"])

    def tree(self, chat_id: int) -> list[Json]:
        return list(self.call("GET", f"chats/{chat_id}")["turns"])

    def turn(self, turn: Json) -> Json:
        return next(t for t in self.tree(turn["chat_id"]) if t["id"] == turn["id"])

    def ask(self, chat_id: int, content: str, parent_id: int | None = None) -> Json:
        """Ask without waiting; returns the answer's turn as it begins."""
        body = {"content": content, "parent_id": parent_id}
        return dict(self.call("POST", f"chats/{chat_id}/ask", body)["answer"])

    def answered(self, turn: Json) -> Json:
        wait_until(lambda: self.turn(turn)["state"] != "streaming")
        return self.turn(turn)

    @contextmanager
    def listening(self, chat_id: int | None = None) -> Iterator[Heard]:
        """Listen in a thread; returns once there was a first event."""
        heard, query = Heard(), "" if chat_id is None else f"?chat={chat_id}"
        with self.http.stream("GET", f"/api/gptoss/chats/changes{query}", timeout=None) as stream:
            assert stream.status_code == 200

            def read() -> None:
                try:
                    for line in stream.iter_lines():
                        heard.take(json.loads(line))
                except httpx.HTTPError:
                    pass  # closed by the test, or by a server that was killed
                heard.is_over = True

            thread = threading.Thread(target=read)
            thread.start()
            try:
                heard.until(lambda h: h.events if chat_id is None else h.of("tree"))
                yield heard
            finally:
                _close(stream)
                thread.join()


def _close(stream: httpx.Response) -> None:
    """Close the socket, so that the thread that reads from it ends."""
    sock = stream.extensions["network_stream"].get_extra_info("socket")
    with suppress(OSError):  # the server has closed it
        sock.shutdown(socket.SHUT_RDWR)
