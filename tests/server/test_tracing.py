"""Traces as a collector gets them from a real server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import PATIENCE_S, RunningServer, free_port, run_server, wait_until
from tests.scripted_engine import Script, answer, calls
from tests.server.collector import Collector, Span, run_collector
from tests.server.dialects import user
from tests.server.page_client import Page
from tests.server.served_tools import run_tool_server

SECRET = "zanzibar"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
COUNT: dict[str, Any] = {
    "model": "nano",
    "messages": [user("Count from 1 to 900.")],
    "stream": True,
    "max_tokens": 3000,
}
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
PATHS = {
    "/api/chat": "ollama",
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai",
    "/v1/messages": "anthropic",
    "/chat/completions": "openai",
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with run_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(nano_home: Path, collector: Collector) -> Iterator[RunningServer]:
    variables = QUICK | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=desk,deployment.environment.name=test",
    }
    with run_server(nano_home, variables=variables) as server:
        yield server


def client(server: RunningServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False)


def request_span(collector: Collector, reply: httpx.Response) -> Span:
    """Wait for the span of the request that got a reply."""
    wanted = [reply.headers["x-request-id"]]

    def found() -> list[Span]:
        name = "http.response.header.request-id"
        return [span for span in collector.spans if span.attributes.get(name) == wanted]

    wait_until(found)
    return found()[0]


@pytest.mark.parametrize("path", PATHS)
def test_spans_of_an_answer(traced: RunningServer, collector: Collector, path: str) -> None:
    turns = [user(f"{SECRET}. What is 17 + 25?")]
    body = {"model": "nano", "messages": turns, "input": turns, "stream": path != "/api/chat"}
    body |= {"max_tokens": 3000} if path == "/v1/messages" else {}
    with client(traced) as http:
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        reply = http.post(path, json=body, headers=headers)
        assert reply.status_code == 200
        span = request_span(collector, reply)
    assert (span.trace_id, span.parent_id, span.is_error) == (TRACE, SPAN, False)
    route = f"/v1{path}" if path == "/chat/completions" else path
    assert span.name == f"POST {route}"
    for name, value in (
        *(("http.request.method", "POST"), ("http.response.status_code", 200)),
        *(("http.route", route), ("url.path", path)),
        *(("gptoss.dialect", PATHS[path]), ("gen_ai.request.model", "nano")),
    ):
        assert span.attributes[name] == value
    inference = collector.children(span)["chat nano"]
    usage = inference.attributes
    assert usage["gen_ai.operation.name"] == "chat"
    assert usage["gen_ai.response.finish_reasons"] == ["stop"]
    phases = collector.children(inference)
    assert phases.keys() == {"queue", "prefill", "decode"}
    queue, prefill, decode = phases["queue"], phases["prefill"], phases["decode"]
    assert span.begun_ns <= inference.begun_ns <= queue.begun_ns
    assert queue.ended_ns == prefill.begun_ns
    assert prefill.ended_ns == decode.begun_ns < decode.ended_ns == inference.ended_ns
    assert inference.ended_ns <= span.ended_ns
    read, written = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
    assert usage[read] == prefill.attributes[read] > 50
    assert usage[written] == decode.attributes[written] > 5
    n_cached = usage["gen_ai.usage.cache_read.input_tokens"]
    assert prefill.attributes["gptoss.prefilled_tokens"] == usage[read] - n_cached
    if path == "/api/chat":
        told = reply.json()
        assert (told["prompt_eval_count"], told["eval_count"]) == (usage[read], usage[written])
        assert told["eval_duration"] == decode.ended_ns - decode.begun_ns
    assert SECRET.encode() not in collector.raw
    assert collector.resource["service.name"] == "desk"
    assert collector.resource["deployment.environment.name"] == "test"


def test_spans_of_what_fails(traced: RunningServer, collector: Collector) -> None:
    with client(traced) as http:
        missing = request_span(collector, http.post("/api/chat", json={"model": "nope"}))
        assert missing.attributes["http.response.status_code"] == 404
        assert not missing.is_error  # it is the client's
        assert request_span(collector, http.get("/api/nope")).name == "GET"
        long = {"model": "nano", "prompt": "a b " * 300_000, "raw": True}
        span = request_span(collector, http.post("/api/generate", json=long))
        inference = collector.children(span)["chat nano"]
        assert inference.is_error
        assert inference.attributes["error.type"] == "ContextOverflowError"
        with http.stream("POST", "/api/chat", json=COUNT) as reply:
            next(reply.iter_lines())
        left = collector.children(request_span(collector, reply))["chat nano"]
        assert left.attributes["gen_ai.response.finish_reasons"] == ["left"]
        assert left.attributes["gen_ai.usage.output_tokens"] >= 1
        assert collector.children(left) == {}
        for path in ("/", "/health", "/metrics"):
            http.get(path)
        request_span(collector, http.get("/api/tags"))
    assert {"GET /", "GET /health", "GET /metrics"}.isdisjoint(s.name for s in collector.spans)


def test_spans_of_tools(
    nano_home: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They run in the page's chats, and for requests to `/v1/responses`."""
    script = Script(vocabulary)
    twice = calls("python", {"code": f"{SECRET} = 1"}), calls("python", {"code": "raise"})
    script.say("Set", *twice, answer("It is set."))
    script.otherwise(answer("Well."))
    hosted = {"type": "code_interpreter", "container": {"type": "auto"}}
    body = {"model": "nano", "input": "Set", "tools": [hosted]}
    for name, value in (QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}).items():
        monkeypatch.setenv(name, value)
    with (
        run_tool_server(
            nano_home, script, log=tmp_path / "log", api_tools="code_interpreter"
        ) as server,
        client(server) as http,
        Page(server) as page,
    ):
        span = request_span(collector, http.post("/v1/responses", json=body))
        chat_id = page.new(options={"tools": "python"})
        page.ask(chat_id, "Set")
        wait_until(lambda: "question" in page.tree(chat_id)[-1]["stats"])
        allowed = {"turn_id": page.tree(chat_id)[-1]["id"], "scope": "chat"}
        page.call("POST", f"chats/{chat_id}/allow", allowed)
        wait_until(lambda: page.tree(chat_id)[-1]["content"] == "It is set.")
    (asked,) = collector.named("POST /api/gptoss/chats/{chat_id:int}/ask")
    for request in (span, asked):  # the server has ended, and has sent all it had
        made = [s for s in collector.spans if s.parent_id == request.span_id]
        made.sort(key=lambda s: s.begun_ns)
        tool, failed = (s for s in made if s.name == "execute_tool python")
        assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
        assert tool.attributes["gen_ai.tool.name"] == "python"
        assert (tool.is_error, failed.is_error) == (False, True)
        assert failed.attributes["error.type"]
        answers = [s for s in made if s.name == "chat nano"]
        assert len(answers) == 3
        assert answers[0].ended_ns <= tool.begun_ns <= tool.ended_ns <= answers[1].begun_ns
    assert SECRET.encode() not in collector.raw


def test_no_collector(nano_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Answers come as ever, and the server ends."""
    variables = QUICK | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with run_server(nano_home, variables=variables) as server, client(server) as http:
        assert http.get("/api/tags").status_code == 200
        wait_until(lambda: "export" in capfd.readouterr().err)
        assert http.get("/api/tags").status_code == 200


STARTS = "import gptoss_local.server.app as a, sys; print(a.start_tracing(), *sys.modules)"


def test_without_the_sdk(tmp_path: Path) -> None:
    """The server says which package it needs; and nothing is imported for nothing."""
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").touch()  # hides the real one
    python = [sys.executable, "-c", STARTS]
    done = subprocess.run(python, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("None ")
    assert "opentelemetry" not in done.stdout
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    wished = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": path}
    done = subprocess.run(python, env=wished, capture_output=True, text=True, check=False)
    assert "pip install 'gptoss-local[otel]'" in done.stdout + done.stderr
