"""A budget of reasoning, answers on demand, and circles, in each dialect over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer
from tests.server.asked import Asked, run_asked
from tests.server.sse import events

THOUGHT = " ".join(f"thought{n}" for n in range(300))
CIRCLE = "All work and no play. " * 2_000


@pytest.fixture(scope="module")
def asked(nano_home: Path, vocabulary: Vocabulary) -> Iterator[Asked]:
    script = Script(vocabulary)
    script.say("Why", answer("So.", THOUGHT, tok_s=5_000))
    script.say("Slow", answer("So.", THOUGHT, tok_s=100))
    script.say("Circle", answer(CIRCLE, tok_s=1e6, n_per_frame=16))
    with run_asked(nano_home, vocabulary, script) as running:
        yield running


def body_of(path: str, question: str) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"input": question}
    if path == "/api/generate":
        return {"prompt": question}
    messages = {"messages": [{"role": "user", "content": question}]}
    return messages | ({"max_tokens": 8_000} if path == "/v1/messages" else {})


def said(reply: Any) -> tuple[str, str]:
    """Return reasoning and content, as each dialect has them."""
    if "message" in reply:
        return reply["message"]["thinking"], reply["message"]["content"]
    if "response" in reply:
        return reply["thinking"], reply["response"]
    if "choices" in reply:
        message = reply["choices"][0]["message"]
        return message["reasoning"], message["content"]
    if "output" in reply:
        thought, message = reply["output"]
        return thought["content"][0]["text"], message["content"][0]["text"]
    thought, text = reply["content"]
    return thought["thinking"], text["text"]


BUDGETS = [
    ("/api/chat", {"options": {"think_budget": 7}}),
    ("/api/generate", {"options": {"think_budget": 7}}),
    ("/v1/chat/completions", {"reasoning": {"max_tokens": 7}}),
    ("/v1/chat/completions", {"thinking_budget_tokens": 7}),
    ("/v1/chat/completions", {"reasoning_budget": 7}),
    ("/v1/chat/completions", {"think_budget": 7}),
    ("/v1/responses", {"reasoning": {"max_tokens": 7}}),
    ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 7}}),
]


@pytest.mark.parametrize(("path", "fields"), BUDGETS)
def test_the_model_answers_after_its_budget(asked: Asked, path: str, fields: Any) -> None:
    reply = asked.post(path, **body_of(path, "Why"), **fields).json()
    reasoning, content = said(reply)
    assert content == "So."
    assert len(asked.vocabulary.encode(reasoning)) == 7
    assert THOUGHT.startswith(reasoning)


@pytest.mark.parametrize("budget", [-1, None, 10_000])
def test_no_budget_is_no_limit(asked: Asked, budget: int | None) -> None:
    options = {"think_budget": budget}
    reply = asked.post("/api/chat", **body_of("/api/chat", "Why"), options=options).json()
    assert said(reply) == (THOUGHT, "So.")


def test_a_wrong_budget_is_refused(asked: Asked) -> None:
    chat = body_of("/api/chat", "Why")
    assert asked.post("/api/chat", **chat, options={"think_budget": -2}).status_code == 400
    assert asked.post("/api/chat", **chat, options={"think_budget": "some"}).status_code == 400
    raw = asked.post("/api/generate", prompt="Why", raw=True, options={"think_budget": 9})
    assert raw.status_code == 400
    assert "think_budget" in raw.json()["error"]


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
def test_the_answer_comes_now(asked: Asked, path: str) -> None:
    """The id is in the headers, which are there before the reasoning ends."""
    body = {"model": "nano", "stream": True} | body_of(path, "Slow")
    with httpx.Client(base_url=asked.url, timeout=60) as http:
        with http.stream("POST", path, json=body) as reply:
            lines = reply.iter_lines()
            assert next(lines)
            done = http.post("/api/gptoss/answer-now", json={"id": reply.headers["x-request-id"]})
            assert done.json() == {"status": "success"}
            text = "\n".join(lines)
        assert "thought299" not in text
        assert "So" in text
        for unknown in ({"id": "req_0"}, {}):
            assert http.post("/api/gptoss/answer-now", json=unknown).status_code == 409


def test_an_answer_in_circles_says_so(asked: Asked) -> None:
    circle = {"/api/chat": "done_reason", "/api/generate": "done_reason"}
    for path, name in circle.items():
        assert asked.post(path, **body_of(path, "Circle")).json()[name] == "repetition"
    chat = asked.post("/v1/chat/completions", **body_of("/v1/chat/completions", "Circle")).json()
    (choice,) = chat["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["native_finish_reason"] == "repetition"
    message = asked.post("/v1/messages", **body_of("/v1/messages", "Circle")).json()
    assert message["stop_reason"] == "max_tokens"
    assert message["stop_details"] == {"type": "repetition"}
    response = asked.post("/v1/responses", **body_of("/v1/responses", "Circle")).json()
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "repetition"}


@pytest.mark.parametrize("path", sorted({path for path, _ in BUDGETS}))
def test_an_answer_may_go_in_circles_if_that_is_wanted(asked: Asked, path: str) -> None:
    is_ollamas = path.startswith("/api/")
    wish: Any = {"options": {"repeat_guard": False}} if is_ollamas else {"repeat_guard": False}
    reply = asked.post(path, **(body_of(path, "Circle") | wish | {"max_tokens": 99_000}))
    assert reply.status_code == 200
    assert CIRCLE.strip() in reply.text
    assert '"repetition"' not in reply.text


def test_streams_say_so_too(asked: Asked) -> None:
    path = "/v1/chat/completions"
    reply = asked.post(path, **body_of(path, "Circle"), stream=True).text
    finishes = [c for _, e in events(reply) if e != "[DONE]" for c in e["choices"]]
    assert finishes[-1]["native_finish_reason"] == "repetition"
    plain = asked.post(path, **body_of(path, "Why"), stream=True).text
    assert "native_finish_reason" not in plain
