"""Real programs: requests in the shapes that they send, and the npm packages, run by node.

The files in fixtures/ were put together from requests that those programs sent to a recording
server, most of them the second turn of a tool loop. The packages are fetched once, by hand, with
`npm ci --prefix tests/npm`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server import well_formed

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
HOT: dict[str, Any] = {"temperature": 3.0, "max_tokens": 40, "max_output_tokens": 40}
NPM = Path(__file__).parents[1] / "npm"
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def scripted(nano_home: Path, vocabulary: Vocabulary) -> Iterator[httpx.Client]:
    script = Script(vocabulary)
    script.otherwise(answer("Well.", "Hm."))
    with (
        run_scripted_server(nano_home, script) as server,
        httpx.Client(base_url=server.url, timeout=300, trust_env=False) as client,
    ):
        yield client


@pytest.mark.quick
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.stem)
def test_answered_and_well_formed(scripted: httpx.Client, file: Path, stream: bool) -> None:
    recorded = json.loads(file.read_text(encoding="utf-8"))
    body = recorded["body"] | {"stream": stream}
    reply = scripted.post(recorded["path"], json=body, headers=recorded["headers"])
    assert reply.status_code == 200, reply.text
    check = well_formed.check_stream if stream else well_formed.check_whole
    check(recorded["path"].partition("?")[0], reply.text if stream else reply.json())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["copilot_chat", "copilot_cli_responses", "claude_code", "cline"])
def test_whatever_the_model_says(http: httpx.Client, name: str) -> None:
    """At temperature 3 nano writes harmony that is anything but well-formed."""
    (file,) = (file for file in FIXTURES if file.stem == name)
    recorded = json.loads(file.read_text(encoding="utf-8"))
    for seed in range(6):
        options = {"temperature": 3.0, "seed": seed, "num_predict": 40}
        hot = HOT | ({} if name == "claude_code" else {"seed": seed, "options": options})
        reply = http.post(recorded["path"], json=recorded["body"] | hot)
        assert reply.status_code == 200, reply.text
        well_formed.check_stream(recorded["path"].partition("?")[0], reply.text)
        assert "<|" not in reply.text


@pytest.mark.nightly
@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.skipif(not (NPM / "node_modules").is_dir(), reason="first: npm ci --prefix tests/npm")
@pytest.mark.parametrize("sdk", ["ollama", "openai"])
def test_npm_package(own_server: RunningServer, sdk: str) -> None:
    """On a server of its own, as an abort is seen in the number of running sequences."""
    result = subprocess.run(
        [str(NODE), "--test", "--test-reporter=tap", f"{sdk}.test.mjs"],
        cwd=NPM,
        env=os.environ | {"GPTOSS_TEST_URL": own_server.url, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "# fail 0" in result.stdout
    assert "# skipped 0" in result.stdout
    assert "# tests 0" not in result.stdout
