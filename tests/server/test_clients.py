"""Requests in the shapes that real programs send, most of them the second turn of a tool loop.

The files in fixtures/ were put together from what those programs sent to a recording server.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server import well_formed

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
LIMITS: dict[str, dict[str, Any]] = {
    "/api/chat": {"options": {"num_predict": 40}},
    "/v1/responses": {"max_output_tokens": 40},
}


@pytest.fixture(scope="module")
def scripted(nano_home: Path, vocabulary: Vocabulary) -> Iterator[httpx.Client]:
    script = Script(vocabulary)
    script.otherwise(answer("Well.", "Hm."))
    with (
        run_scripted_server(nano_home, script) as server,
        httpx.Client(base_url=server.url, timeout=300, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.stem)
def test_answered_and_well_formed(scripted: httpx.Client, file: Path, stream: bool) -> None:
    recorded = json.loads(file.read_text(encoding="utf-8"))
    path = recorded["path"].partition("?")[0]
    body = recorded["body"] | {"stream": stream}
    headers = {"content-type": "application/json"} | recorded["headers"]
    reply = scripted.post(recorded["path"], content=json.dumps(body), headers=headers)
    assert reply.status_code == 200, reply.text
    if stream:
        well_formed.check_stream(path, reply.text)
    else:
        well_formed.check_whole(path, reply.json())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["copilot_chat", "copilot_cli_responses", "claude_code", "cline"])
def test_whatever_the_model_says(http: httpx.Client, name: str) -> None:
    """At temperature 3 nano writes harmony that is anything but well-formed."""
    recorded = json.loads((FIXTURES[0].parent / f"{name}.json").read_text(encoding="utf-8"))
    path = recorded["path"].partition("?")[0]
    for seed in range(6):
        limits = LIMITS.get(path, {"max_tokens": 40})
        hot: dict[str, Any] = {"temperature": 3.0, "seed": seed}
        if "options" in limits:
            hot = {"options": {**hot, "num_predict": 40}}
        reply = http.post(recorded["path"], json=recorded["body"] | limits | hot)
        assert reply.status_code == 200, reply.text
        well_formed.check_stream(path, reply.text)
        assert "<|" not in reply.text
