"""A call runs once, and ends immediately with any answer of a server."""

import asyncio
import json
import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.talk.loop import Loop
from tests.threaded_server import QuietHandler, served_by
from tests.tools.mcp.conftest import HERE, Prepare
from tests.tools.mcp.faulty_answers import FAULTS, WORDS, answer
from tests.tools.test_loop import Scripted, said, told

USED = {
    "lone half": "cut \ufffd",
    "no jsonrpc": "rolled 4",
    "float id": "rolled 4",
    "many lines": "rolled 4",
    "indented": "rolled 4",
    "odd fields": "rolled 4",
    "error as text": "Error: plain text",
    **{words: f"Error: {words}" for words in WORDS},
}
QUOTED = {
    "only an id": '{"id":',
    "null result": '"result":null',
    "no message": '"message":null',
    "no JSON": "rolled 4",
    "cut": "rolled 4",
    "text as content": '"content":"rolled 4"',
}


@contextmanager
def at_an_address(fault: str, calls: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Answer the same over streamable HTTP, or over the older SSE."""
    events: queue.Queue[str | None] = queue.Queue()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = answer(request, fault, calls) if "id" in request else ""
            if kind == "sse":
                events.put(text)
                text = ""
            self._send(text.encode(), 200 if text else 202)

        def do_GET(self) -> None:
            if kind == "http":
                return self._send(b"", 405)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"event: endpoint\ndata: /post\n\n")
            while (text := events.get()) is not None:
                lines = "".join(f"data: {line}\n" for line in text.split("\n"))
                self.wfile.write(f"event: message\n{lines}\n".encode() if text else b"")

        do_DELETE = do_GET

        def _send(self, body: bytes, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", "one")
            self.end_headers()
            self.wfile.write(body)

    with served_by(Handler) as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp", "type": kind}
        events.put(None)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (kind, fault)
        for kind in ("stdio", "http", "sse")
        for fault, text in FAULTS.items()
        if kind != "stdio" or "\n" not in text  # there a message is a line
    ],
)
async def test_each_call_runs_once_and_ends_at_once(
    prepared: Prepare, tmp_path: Path, kind: str, fault: str
) -> None:
    calls = tmp_path / "calls"
    entry = {
        "command": sys.executable,
        "args": [str(HERE / "faulty_answers.py"), fault, str(calls)],
    }
    serving = nullcontext(entry) if kind == "stdio" else at_an_address(fault, calls, kind)
    with serving as server:
        toolbox, news = await prepared(faulty=server)
        assert news == []
        for n_calls in (1, 2):  # the second by the same server, which was not ended
            async with asyncio.timeout(10):
                result = await toolbox.run("roll", {})
            assert calls.read_text() == "x" * n_calls
            if fault in USED:
                assert result.text == USED[fault]
            else:
                assert result.is_error
                assert "the MCP server 'faulty' answered something that is not MCP" in result.text
                assert QUOTED[fault] in result.text
                assert "pydantic" not in result.text


async def test_an_error_without_an_id_ends_the_only_call(prepared: Prepare, tmp_path: Path) -> None:
    args = [str(HERE / "faulty_answers.py"), "no id", str(tmp_path / "calls")]
    toolbox, _ = await prepared(faulty={"command": sys.executable, "args": args})
    async with asyncio.timeout(10):
        assert (await toolbox.run("roll", {})).text == "Error: out of dice"


async def test_an_equal_call_runs_twice_and_the_fifth_ends_the_exchange(
    prepared: Prepare, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    args = [str(HERE / "faulty_answers.py"), "no jsonrpc", str(calls)]
    toolbox, _ = await prepared(faulty={"command": sys.executable, "args": args})
    events = Loop(Scripted(said("roll")), toolbox, None).run()
    lines = [line async for event in events for line in told(event)]
    assert calls.read_text() == "xx"
    assert sum("you have this result already" in line for line in lines) == 2
    assert lines[-1] == "limit 5 equal calls of roll"
