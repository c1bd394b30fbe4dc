"""Answers of every endpoint, byte for byte but for ids, times and facts of the machine.

The model is a script, so no byte depends on how a machine computes. The answers are kept in
`__snapshots__`. A change that is meant is accepted by `pytest tests/server/test_exchanges.py
--snapshot-update`, and seen in `git diff`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from syrupy.assertion import SnapshotAssertion

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Reply, Script, answer, calls, run_scripted_server

CODE = "Sure:\n\n```python\nprint('日本語')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "get_weather", "description": "Look outside.", "parameters": WEATHER}
CHAT_TOOL = {"type": "function", "function": TOOL}
CLAUDE_TOOL = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": WEATHER}
ASK = [{"role": "user", "content": "Show me code"}]
CALL = [{"role": "user", "content": "Weather?"}]
NOTE = {"type": "custom", "name": "note"}
NOTED = [{"role": "user", "content": "Note"}]
CUT = [{"role": "user", "content": "Cut"}]
CLAUDE = {"anthropic-version": "2023-06-01"}

# These fields differ from run to run or by machine.
SECRETS = (
    (
        r"(chatcmpl|cmpl|resp|msg|rs|fc|ctc|call|toolu|req|item|lineage)[-_][0-9a-zA-Z]{8,}",
        r"\1_ID",
    ),
    (r"sha256:[0-9a-f]{64}|\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.]*(Z|[+-]\d\d:\d\d)", "TIME"),
    (r'"(created|created_at|completed_at|expires_at)": ?\d+(\.\d+)?', r'"\1":TIME'),
    (r'"(\w*_duration)": ?\d+', r'"\1":NANOSECONDS'),
    (r"Current date: \d{4}-\d\d-\d\d", "Current date: DATE"),
    (r"\b(6576,3521,25,220)(,\d+){6}", r"\1,DATE"),  # the same in tokens
    (r'"(pid|port|size|size_vram|free|total)": ?\d+', r'"\1":NUMBER'),
)
HEADERS = ("content-type", "allow", "retry-after", "cache-control", "www-authenticate", "location")

EXCHANGES: dict[str, tuple[str, str, Any, dict[str, str]]] = {}


def exchange(name: str, call: str, body: Any = None, **headers: str) -> None:
    method, path = call.split(" ", 1)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    EXCHANGES[name] = (method, path, body, named)


def of_models() -> None:
    for path in ("/", "/api/version", "/api/tags", "/v1/models", "/v1/models/nano"):
        exchange(f"get {path}", f"GET {path}")
    exchange("show", "POST /api/show", {"model": "nano"})
    exchange("show an unknown model", "POST /api/show", {"model": "nobody"})
    exchange("an unknown model of OpenAI's", "GET /v1/models/nobody")
    exchange("models for Anthropic's clients", "GET /v1/models", **CLAUDE)
    for path in ("/nothing", "/v1/nothing", "/v1/messages/nothing"):
        exchange(f"no such path {path}", f"GET {path}")
    for path in ("/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses"):
        exchange(f"wrong method {path}", f"PUT {path}", {})
        exchange(f"not JSON {path}", f"POST {path}", b"{")
        exchange(f"empty object {path}", f"POST {path}", {})
        exchange(f"unknown model {path}", f"POST {path}", body_for(path, "Hi") | {"model": "none"})
        exchange(f"bad temperature {path}", f"POST {path}", temperature_for(path))


def body_for(path: str, text: str) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"model": "nano", "input": text}
    body = {"model": "nano", "messages": [{"role": "user", "content": text}]}
    return body | ({"max_tokens": 64} if path == "/v1/messages" else {})


def temperature_for(path: str) -> dict[str, Any]:
    body = body_for(path, "Hi")
    return body | ({"options": {"temperature": "hot"}} if "/api" in path else {"temperature": 9})


def of_answers() -> None:
    for stream in (False, True):
        how = "streamed" if stream else "whole"
        for what, messages, more in (
            ("code", ASK, {}),
            ("a call", CALL, {"tools": [CHAT_TOOL]}),
            ("a cut answer", CUT, {}),
        ):
            shared = {"model": "nano", "messages": messages, "stream": stream} | more
            exchange(f"ollama chat, {what}, {how}", "POST /api/chat", shared)
            exchange(f"openai chat, {what}, {how}", "POST /v1/chat/completions", shared)
            claude = shared | {"max_tokens": 512} | ({"tools": [CLAUDE_TOOL]} if more else {})
            exchange(f"anthropic, {what}, {how}", "POST /v1/messages", claude, **CLAUDE)
            tools = {"tools": [{"type": "function", **TOOL}]} if more else {}
            asked = {"model": "nano", "input": messages, "stream": stream} | tools
            exchange(f"responses, {what}, {how}", "POST /v1/responses", asked)
        prompt = {"model": "nano", "prompt": "Show me code", "stream": stream}
        exchange(f"generate, {how}", "POST /api/generate", prompt)
        exchange(f"completions, {how}", "POST /v1/completions", prompt)
        usage = {"stream_options": {"include_usage": True}} if stream else {}
        asked = {"model": "nano", "messages": ASK, "stream": stream} | usage
        exchange(f"openai chat, with usage, {how}", "POST /v1/chat/completions", asked)
        asked = {"model": "nano", "input": "Note", "stream": stream, "tools": [NOTE]}
        exchange(f"responses, free text, {how}", "POST /v1/responses", asked)
        nested = {"type": "custom", "custom": {"name": "note"}}
        asked = {"model": "nano", "messages": NOTED, "stream": stream, "tools": [nested]}
        exchange(f"openai chat, free text, {how}", "POST /v1/chat/completions", asked)
    exchange("count tokens", "POST /v1/messages/count_tokens", {"model": "nano", "messages": ASK})
    results = [
        *CALL,
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": {
            "name": "get_weather", "arguments": '{"city":"Oslo"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Snow"},
    ]  # fmt: skip
    looped = {"model": "nano", "messages": results, "tools": [CHAT_TOOL]}
    exchange("openai chat, after a result", "POST /v1/chat/completions", looped)
    exchange("inspect", "POST /api/gptoss/inspect", {"model": "nano", "messages": ASK})


of_models()
of_answers()


@pytest.fixture(scope="module")
def client(nano_home: Path, vocabulary: Vocabulary) -> Iterator[httpx.Client]:
    script = Script(vocabulary)
    slow = {"tok_s": 1000.0}
    script.say("Show me code", answer(CODE, "They want code.", **slow))
    call = calls("get_weather", {"city": "Oslo"}, "Look outside.", **slow)
    script.say("Weather?", call, answer("It snows."))
    script.say("Cut", Reply(text="<|channel|>final<|message|>This is c"))
    script.say("Note", calls("note", {"input": "+x\n"}, "Write."))
    script.otherwise(answer("I do not know."))
    with (
        run_scripted_server(nano_home, script) as server,
        httpx.Client(base_url=server.url, headers=server.owner, timeout=300) as client,
    ):
        yield client


@pytest.mark.parametrize("name", EXCHANGES)
def test_answer(client: httpx.Client, name: str, snapshot: SnapshotAssertion) -> None:
    method, path, body, headers = EXCHANGES[name]
    content = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
    answered = client.request(method, path, content=content, headers=headers)
    shown = [f"{answered.status_code} {method} {path}"]
    shown += [f"{key}: {answered.headers[key]}" for key in HEADERS if key in answered.headers]
    text = "\n".join([*shown, "", answered.text])
    for pattern, instead in SECRETS:
        text = re.sub(pattern, instead, text)
    assert text == snapshot
