"""Whether an answer has the form that its dialect promises, whatever it says."""

import json
from typing import Any

from gptoss_local.cli.eval.api import (
    check_chunks,
    check_completion,
    check_events,
    check_response,
)
from tests.server import sse


def check_stream(path: str, text: str) -> None:
    """Check a whole stream; raises AssertionError, or WrongShapeError."""
    if path.startswith("/api/"):
        _check_ndjson(text)
    elif path.startswith("/v1/messages"):
        _check_messages(sse.events(text))
    elif path == "/v1/responses":
        check_events(sse.events(text))
    else:
        check_chunks([data for _, data in sse.events(text)])


def check_whole(path: str, body: dict[str, Any]) -> None:
    """Check an answer that was not streamed."""
    if path.startswith("/api/"):
        assert (body["message"]["role"], body["done"]) == ("assistant", True)
    elif path.startswith("/v1/messages"):
        assert body["stop_reason"] in ("end_turn", "tool_use", "max_tokens")
        assert {block["type"] for block in body["content"]} <= {"thinking", "text", "tool_use"}
    elif path == "/v1/responses":
        check_response(body)
    else:
        check_completion(body)


def _check_ndjson(text: str) -> None:
    frames = [json.loads(line) for line in text.splitlines()]
    assert [frame["done"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert all(frame["message"]["role"] == "assistant" for frame in frames)


def _check_messages(events: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in events]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    n_blocks, is_open = 0, False
    for name, data in events[1:-2]:
        if name == "ping":
            continue
        assert data["index"] == n_blocks
        assert is_open == (name != "content_block_start")
        is_open = name != "content_block_stop"
        n_blocks += name == "content_block_stop"
    assert not is_open
