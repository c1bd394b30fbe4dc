"""Reasoning, text and calls in every order: nothing is lost, and every stream is well formed.

The real model writes few of these orders; gpt-oss itself thinks again after a preamble.
"""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from gptoss_local.base.types import Usage
from gptoss_local.harmony import ChatEvent, ContentDelta, Done, ReasoningDelta, Started, ToolCall
from gptoss_local.server.dialects.anthropic.routes import MessagesWriter
from gptoss_local.server.dialects.ollama.frames import ChatWriter
from gptoss_local.server.dialects.openai.chat import ChatCompletionWriter
from gptoss_local.server.dialects.openai.responses_frames import ResponsesWriter
from gptoss_local.server.dialects.openai.responses_request import ResponsesBody
from gptoss_local.server.dialects.openai.responses_tools import ClientTools
from tests.server import sse, well_formed
from tests.server.test_streaming import answer, respond

WRITERS: dict[str, Any] = {
    "/api/chat": lambda: ChatWriter("m"),
    "/v1/chat/completions": lambda: ChatCompletionWriter("m", include_usage=True),
    "/v1/responses": lambda: ResponsesWriter(
        ResponsesBody(model="m"), ClientTools(), lambda _made: None
    ),
    "/v1/messages": lambda: MessagesWriter("m"),
}
ORDERS = [order for n in range(5) for order in itertools.product("rct", repeat=n)]


def events(order: tuple[str, ...]) -> Iterator[ChatEvent]:
    yield Started(3)
    n_calls = 0
    for position, kind in enumerate(order):
        match kind:
            case "r":
                yield ReasoningDelta(f"r{position}.")
            case "c":
                yield ContentDelta(f"c{position}.")
            case _:
                yield ToolCall(n_calls, f"call_{position}", "f", {"at": position})
                n_calls += 1
    yield Done("stop", Usage(3, 1, 0, 0), [])


def runs(order: tuple[str, ...]) -> list[tuple[str, str]]:
    """Blocks that the order makes: neighbours of a kind are one, but each call is its own."""
    blocks: list[tuple[str, str]] = []
    for position, kind in enumerate(order):
        if kind != "t" and blocks and blocks[-1][0] == kind:
            blocks[-1] = (kind, f"{blocks[-1][1]}{kind}{position}.")
        else:
            blocks.append((kind, str(position) if kind == "t" else f"{kind}{position}."))
    return blocks


@pytest.mark.parametrize("path", WRITERS)
async def test_streamed_and_whole(path: str) -> None:
    for order in ORDERS:
        _, pieces = await respond(answer(asyncio.sleep(0), list(events(order))), WRITERS[path]())
        text = b"".join(pieces).decode()
        well_formed.check_stream(path, text)
        if path == "/v1/responses":
            assert items_of(sse.events(text)[-2][1]["response"]["output"]) == runs(order)
        elif path == "/v1/messages":
            assert blocks_of(blocks_in(text)) == runs(order)
        said = answer(asyncio.sleep(0), list(events(order)))
        _, (sent,) = await respond(said, WRITERS[path](), stream=False)
        body = json.loads(sent)
        well_formed.check_whole(path, body)
        match path:
            case "/v1/responses":
                assert items_of(body["output"]) == runs(order)
            case "/v1/messages":
                assert blocks_of(body["content"]) == runs(order)
                assert body["stop_reason"] == ("tool_use" if "t" in order else "end_turn")
            case _:
                check_message(order, body)


def check_message(order: tuple[str, ...], body: dict[str, Any]) -> None:
    """Chat completions and Ollama's messages have one text of each kind."""
    of = {kind: [text for found, text in runs(order) if found == kind] for kind in "rct"}
    is_openai = "choices" in body
    choice = body["choices"][0] if is_openai else body
    message = choice["message"]
    assert message["content"] == "".join(of["c"])
    for name in ("reasoning", "reasoning_content") if is_openai else ("thinking",):
        assert message.get(name, "") == "".join(of["r"])
    arguments = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    parsed = [json.loads(a) if isinstance(a, str) else a for a in arguments]
    assert [str(a["at"]) for a in parsed] == of["t"]
    if is_openai:
        assert choice["finish_reason"] == ("tool_calls" if "t" in order else "stop")
    else:
        assert body["done_reason"] == "stop"


def items_of(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Read the output of Responses. Ollama drops the text next to a call, and all behind one."""
    found = []
    for item in items:
        match item["type"]:
            case "reasoning":
                found.append(("r", item["summary"][0]["text"]))
            case "message":
                assert item["status"] == "completed"
                found.append(("c", item["content"][0]["text"]))
            case _:
                found.append(("t", str(json.loads(item["arguments"])["at"])))
    return found


def blocks_of(blocks: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Read the content of Messages. Ollama drops thoughts after a text."""
    found = []
    for block in blocks:
        match block["type"]:
            case "thinking":
                assert block["signature"]
                found.append(("r", block["thinking"]))
            case "text":
                found.append(("c", block["text"]))
            case _:
                found.append(("t", str(block["input"]["at"])))
    return found


def blocks_in(text: str) -> Iterator[dict[str, Any]]:
    """Put content blocks together from their deltas, as Anthropic's SDKs do."""
    block: dict[str, Any] = {}
    for name, data in sse.events(text):
        if name == "content_block_start":
            block = data["content_block"]
        elif name == "content_block_stop":
            yield block
        elif name == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
            else:
                field = delta["type"].removesuffix("_delta")
                block[field] += delta[field]
