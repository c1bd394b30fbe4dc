"""Our OpenAPI document: complete, and true of the server's real answers."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gptoss_local.base.settings import Settings as ServerSettings
from gptoss_local.server.app import make_app
from gptoss_local.server.openapi import ENDPOINTS, document
from tests.conftest import RunningServer, run_server
from tests.server.page_client import Page

CHECKS = [
    *(not_a_server_error, status_code_conformance),
    *(content_type_conformance, response_schema_conformance),
]
OPTIONS = {"num_predict": 3}
LIMITS: dict[str, dict[str, Any]] = {
    "/api/chat": {"options": OPTIONS},
    "/api/generate": {"options": OPTIONS},
    "/v1/chat/completions": {"max_tokens": 3, "max_completion_tokens": None},
    "/v1/completions": {"max_tokens": 3},
    "/v1/responses": {"max_output_tokens": 3},
    "/v1/messages": {"max_tokens": 3},
}
MESSAGES = [{"role": "user", "content": "hi"}]
PLAIN: dict[str, Any] = {"tools": [], "tool_choice": None, "reasoning": None}
OPENAI = PLAIN | {"n": 1, "logprobs": True, "reasoning_effort": "none", "response_format": {},
                  "logit_bias": {"5": 1}}  # fmt: skip
ANTHROPIC = PLAIN | {"messages": MESSAGES, "system": "", "thinking": None, "output_config": None,
                     "output_format": None}  # fmt: skip
RESPONSES = PLAIN | {"input": MESSAGES, "background": False, "previous_response_id": "",
                     "conversation": "", "prompt": {}, "text": None,
                     "include": ["message.output_text.logprobs"]}  # fmt: skip
NONE = ("files", "adapters", "template", "parameters", "messages", "quantize")
HELP: dict[str, dict[str, Any]] = {  # without it hardly a request would reach the model
    "/api/chat": {"messages": MESSAGES, "images": [], "logprobs": True, "think": False},
    "/v1/chat/completions": OPENAI | {"messages": MESSAGES},
    "/v1/chat/completions/input_tokens": OPENAI | {"messages": MESSAGES},
    "/apply-template": PLAIN | {"messages": MESSAGES},
    "/v1/completions": OPENAI | {"prompt": "hi", "suffix": ""},
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/messages": ANTHROPIC,
    "/v1/messages/count_tokens": ANTHROPIC,
    "/api/create": dict.fromkeys(NONE) | {"model": "made", "from": "nano"},
    "/api/copy": {"source": "nano", "destination": "made"},
    "/api/delete": {"model": "made"},
    "/api/gptoss/files": {"name": "notes.txt"},  # in the query: the body is the file
}
ENDS = (
    "/api/gptoss/shutdown",  # the server
    "/api/gptoss/chats/changes",  # never
    "/api/gptoss/mcp",  # in programs of chance
    "/api/gptoss/mcp/test",
)
BY_CHANCE = (  # random values do not name the models that these need
    *("/models/{name}", "{response}", "{path}", "blobs", "/embed", "/gptoss/mcp/{name}"),
    *("/allow", "/answer-now", "/gptoss/open"),
    "/chats/unlock",  # chats that have no passphrase
    "/undo",  # of a patch that is not there
)
_TURN = {"chat_id": 1, "content": "hi", "created_s": 1.0}
EXPORTED: dict[str, Any] = {
    "format": "gptoss-chat",
    "version": 1,
    "chat": {"id": 1, "title": "", "model": "nano", "effort": "low", "n_turns": 2, "leaf_id": 2,
             "created_s": 1.0, "updated_s": 1.0},
    "turns": [
        {"id": 1, "parent_id": None, "role": "user", **_TURN},
        {"id": 2, "parent_id": 1, "role": "assistant", "state": "stopped", **_TURN},
    ],
}  # fmt: skip


@pytest.mark.quick
def test_document_is_complete() -> None:
    app = make_app(ServerSettings(), shut_down=lambda: None)
    served = {
        (method.lower(), re.sub(r":(path|int)}", "}", route.path))  # type: ignore[attr-defined]
        for route in app.routes
        for method in route.methods  # type: ignore[attr-defined]
        if method != "HEAD" or "blobs" in route.path  # type: ignore[attr-defined]
    }
    described = document()["paths"]
    assert served == {(method, path) for path in described for method in described[path]}


class Fuzzed(Page):
    """The page, with a chat for each request, as that may delete it."""

    def some_chat(self) -> dict[str, Any]:
        """Return the ids of a chat, its question and its answer, and fields that are right."""
        text = msgspec.json.encode(EXPORTED)
        chat = self.http.post("/api/gptoss/chats/import", content=text).json()
        ids = {"chat_id": chat["id"], "turn_id": chat["leaf_id"], "leaf_id": chat["leaf_id"]}
        return EXPORTED | ids | {"parent_id": chat["leaf_id"] - 1, "options": {}, "folds": []}


@pytest.fixture(scope="module")
def throw_away(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path
) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("openapi")
    (home / "cache").symlink_to(nano_home / "cache")
    variables = {"XDG_CONFIG_HOME": str(home)}  # where presets are
    with run_server(home, variables=variables, context_length="2048") as server:
        httpx.post(
            f"{server.url}/api/generate", json={"model": "nano"}, trust_env=False, timeout=60
        )
        yield server


@pytest.fixture(scope="module")
def schema(throw_away: RunningServer) -> Any:
    schema = schemathesis.openapi.from_dict(document())
    schema.config.update(base_url=throw_away.url)
    return schema


@pytest.mark.parametrize(
    ("method", "path", "is_refused"),
    [
        (e.method.lower(), re.sub(r":(path|int)}", "}", e.path), e.is_refused)
        for e in ENDPOINTS
        if e.path not in ENDS
    ],
)
def test_answers_are_as_documented(
    throw_away: RunningServer, schema: Any, method: str, path: str, *, is_refused: bool
) -> None:
    """Any request: no 5xx, and documented statuses, types and shapes.

    Paths with help are asked again: with it beside chance, then with it alone until one answers.
    """
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=min(settings().max_examples // 4, 20),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def check(case: Any, with_help: str) -> None:
        if with_help == "alone" and 200 in statuses:
            return
        known = page.some_chat() if "/chats" in path else {}
        if "chat_id" in case.path_parameters:
            case.path_parameters["chat_id"] = known["chat_id"]
        if isinstance(case.body, dict):
            if with_help == "alone":
                case.body.clear()
            case.body |= LIMITS.get(path, {}) | {"stream": False, "model": "nano"}
            if with_help:
                case.body |= HELP.get(path, {}) | known
        elif with_help == "alone":
            case.query, case.body = HELP[path], b"Some notes."
        if path == "/api/delete":
            page.http.post("/api/copy", json=HELP["/api/copy"])
        response = case.call_and_validate(checks=CHECKS, timeout=30, headers=throw_away.owner)
        statuses[response.status_code] += 1

    with Fuzzed(throw_away) as page:
        check(with_help="")
        if path in HELP or "/chats" in path:
            check(with_help="beside chance")
        if path in HELP:
            check(with_help="alone")
    is_named = any(name in path for name in BY_CHANCE)
    assert (200 in statuses) == (not is_refused and not is_named), statuses
