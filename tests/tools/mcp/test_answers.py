"""A call runs once, and ends at once with what came, whatever a server answers."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port, wait_until
from tests.tools.mcp.conftest import HERE, Prepare
from tests.tools.mcp.faulty_answers import FAULTS, WORDS
from tests.tools.mcp.test_http import listens

USED = {
    "lone half": "cut \ufffd",
    "no jsonrpc": "rolled 4",
    "many lines": "rolled 4",
    "indented": "rolled 4",
    "odd fields": "rolled 4",
    "error as text": "Error: plain text",
    **{words: f"Error: {words}" for words in WORDS},
}
QUOTED = {
    "null result": '"result":null',
    "no message": '"message":null',
    "no JSON": "rolled 4",
    "cut": "rolled 4",
    "text as content": '"content":"rolled 4"',
}


@contextmanager
def at_an_address(command: list[str], kind: str) -> Iterator[dict[str, Any]]:
    port = free_port()
    process = subprocess.Popen([*command, str(port), *(["sse"] if kind == "sse" else [])])
    try:
        wait_until(lambda: listens(port))
        yield {"url": f"http://127.0.0.1:{port}/mcp", "type": kind}
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["stdio", "http", "sse"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_each_call_runs_once_and_ends_at_once(
    prepared: Prepare, tmp_path: Path, kind: str, fault: str
) -> None:
    calls = tmp_path / "calls"
    command = [sys.executable, str(HERE / "faulty_answers.py"), fault, str(calls)]
    entry = {"command": command[0], "args": command[1:]}
    with nullcontext(entry) if kind == "stdio" else at_an_address(command, kind) as server:
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
