"""Habits of clients: a moving first line, images of tools, and waiting for headers."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer
from tests.server.asked import Asked, run_asked

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
BILLING = "x-anthropic-billing-header: cc_version=2.1.36.abc; cc_entrypoint=cli; cch={};"


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.say("Slow", answer("Yes.", "Hm.", prefill_s=9.0))
    script.otherwise(answer("Well."))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def test_the_line_of_billing_is_left_out(asked: Asked) -> None:
    prompts = []
    for code in ("a1b2c", "d3e4f"):
        line = BILLING.format(code)
        blocks = [{"type": "text", "text": text} for text in (line, "You are Claude.\nBe brief.")]
        user = {"role": "user", "content": "Hi"}
        asked.post("/v1/messages", max_tokens=99, system=blocks, messages=[user])
        prompts.append(asked.prompt())
        system = {"role": "system", "content": f"{line}\nYou are Claude.\nBe brief."}
        asked.post("/v1/chat/completions", messages=[system, user])
        prompts.append(asked.prompt())
        asked.post("/api/chat", messages=[{"role": "system", "content": line}, system, user])
    assert len(set(prompts)) == 1
    assert "You are Claude.\nBe brief." in prompts[0]
    assert "billing" not in asked.prompt()


CALL: Any = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LOOPS: list[tuple[str, list[Any]]] = [
    (
        "/v1/chat/completions",
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        ],
    ),
    (
        "/api/chat",
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "ok"},
            {"role": "user", "content": "", "images": ["iVBORw0="]},
        ],
    ),
    (
        "/v1/responses",
        [
            {"role": "user", "content": "Look"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
            {"role": "user", "content": [{"type": "input_image", "image_url": PNG}]},
        ],
    ),
    (
        "/v1/messages",
        [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "ok"},
                    {"type": "image", "source": {"type": "base64", "data": "iVBORw0="}},
                ],
            },
        ],
    ),
]


@pytest.mark.parametrize(("path", "turns"), LOOPS)
def test_an_image_that_nobody_typed_becomes_a_note(
    asked: Asked, path: str, turns: list[Any]
) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    body: dict[str, Any] = {name: turns} | ({"max_tokens": 99} if path == "/v1/messages" else {})
    assert asked.post(path, **body).status_code == 200
    assert "image" in asked.texts("user")[-1]
    own = turns[-1]
    if path == "/v1/messages":
        own = own | {"content": own["content"][1:]}
    assert asked.post(path, **(body | {name: [own]})).status_code == 400


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/api/chat", "/v1/responses"])
def test_headers_do_not_wait_for_the_first_frame(asked: Asked, path: str) -> None:
    name = "input" if path == "/v1/responses" else "messages"
    body = {"model": "nano", "stream": True, name: [{"role": "user", "content": "Slow"}]}
    begun_s = time.monotonic()
    with httpx.stream("POST", asked.url + path, json=body, timeout=30, trust_env=False) as reply:
        assert reply.status_code == 200
        assert time.monotonic() - begun_s < 8
        assert "Yes" in reply.read().decode()
