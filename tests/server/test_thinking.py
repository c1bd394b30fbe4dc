"""A budget of reasoning, answers on demand, and circles, in each dialect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer
from tests.server import sse
from tests.server.asked import Asked, run_asked
from tests.server.dialects import speak, user

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


@pytest.mark.parametrize(
    ("name", "fields", "n_thought"),
    [
        ("ollama", {"options": {"think_budget": 7}}, 7),
        ("ollama", {"options": {"think_budget": -1}}, None),
        ("ollama", {"options": {"think_budget": 10_000}}, None),
        ("chat", {"extra_body": {"reasoning": {"max_tokens": 7}}}, 7),
        ("chat", {"extra_body": {"thinking_budget_tokens": 7}}, 7),
        ("chat", {"extra_body": {"reasoning_budget": 7}}, 7),
        ("chat", {"extra_body": {"think_budget": 7}}, 7),
        ("responses", {"reasoning": {"max_tokens": 7}}, 7),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 7}}, 7),
    ],
)
def test_the_model_answers_after_its_budget(
    asked: Asked, name: str, fields: Any, n_thought: int | None
) -> None:
    with speak(asked.url) as dialects:
        said = dialects[name].ask([user("Why")], more=fields)
    assert said.content == "So."
    assert THOUGHT.startswith(said.reasoning)
    tokens = asked.vocabulary.encode(said.reasoning)
    assert len(tokens) == (n_thought or len(asked.vocabulary.encode(THOUGHT)))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (path, fields)
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/completions")
        for fields in (
            {"think": False},
            {"enable_thinking": False},
            {"reasoning": {"enabled": False}},
            {"reasoning": {"effort": "none"}},
        )
    ]
    + [("/v1/chat/completions", {"chat_template_kwargs": {"enable_thinking": False}})],
)
def test_no_reasoning_by_any_name(asked: Asked, path: str, fields: dict[str, Any]) -> None:
    turn: dict[str, Any] = {"input": "Why", "prompt": "Why", "messages": [user("Why")]}
    name = {"/v1/responses": "input", "/v1/completions": "prompt"}.get(path, "messages")
    made = asked.post(path, **{name: turn[name]}, **fields)
    assert (made.status_code, THOUGHT in made.text) == (200, False), made.text
    assert asked.prompt().endswith("<|channel|>final<|message|>")
    assert "x-gptoss-warning" not in made.headers
    asked.post(path, **{name: turn[name]}, think="high")
    assert "Reasoning: high" in asked.prompt()


def test_generate_has_a_budget_too(asked: Asked) -> None:
    reply = asked.post("/api/generate", prompt="Why", options={"think_budget": 7}).json()
    assert reply["response"] == "So."
    assert len(asked.vocabulary.encode(reply["thinking"])) == 7


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
def test_the_answer_comes_now(asked: Asked, path: str) -> None:
    """The id is in the headers, which are there before the reasoning ends."""
    body = {"model": "nano", "stream": True, "messages": [user("Slow")]}
    with httpx.Client(base_url=asked.url, timeout=300) as http:
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


TURNS: dict[str, Any] = {"messages": [user("Circle")]}
CIRCLES: dict[str, tuple[dict[str, Any], Any]] = {
    "/api/chat": (TURNS, lambda reply: reply["done_reason"]),
    "/api/generate": ({"prompt": "Circle"}, lambda reply: reply["done_reason"]),
    "/v1/chat/completions": (TURNS, lambda reply: reply["choices"][0]["native_finish_reason"]),
    "/v1/responses": ({"input": "Circle"}, lambda reply: reply["incomplete_details"]["reason"]),
    "/v1/messages": (TURNS | {"max_tokens": 99_000}, lambda reply: reply["stop_details"]["type"]),
}


@pytest.mark.parametrize("path", CIRCLES)
def test_an_answer_in_circles_is_ended_unless_it_is_wanted(asked: Asked, path: str) -> None:
    body, reason = CIRCLES[path]
    assert reason(asked.post(path, **body).json()) == "repetition"
    wish: Any = {"repeat_guard": False}
    reply = asked.post(path, **body | ({"options": wish} if path.startswith("/api/") else wish))
    assert reply.status_code == 200
    assert CIRCLE.strip() in reply.text
    assert '"repetition"' not in reply.text
    if path == "/v1/chat/completions":
        text = asked.post(path, **body | {"stream": True}).text
        choice = sse.events(text)[-2][1]["choices"][0]
        ends = (choice["native_finish_reason"], choice["finish_reason"])
        assert ends == ("repetition", "length")
