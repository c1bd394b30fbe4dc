"""A model that is computed elsewhere, from models.toml to every dialect and command."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gptoss_local.base.settings import environment_without_secrets
from gptoss_local.engine.client import EngineClient
from gptoss_local.models.catalog import catalog
from tests.conftest import RunningServer, free_port, run_server
from tests.server.collector import run_collector
from tests.upstream.stand_in import StandIn, serving, status, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-key-that-nobody-may-see"
QUESTION = {"role": "user", "content": "What is the capital of France?"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
        monkeypatch.setenv("FAR_KEY", KEY)
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(
    engine: EngineClient, vocabulary: Any, config: Path, nano_home: Path
) -> AsyncIterator[StandIn]:
    """An upstream that `gptoss upstream add` has made the model `far`."""
    async with serving(StandIn("vllm", engine, vocabulary, key=KEY)) as running:
        running.url += "/v1"
        added = await gptoss(
            nano_home, "upstream", "add", "far", "--kind", "vllm", "--url", running.url,
            "--model", "served", "--key-env", "FAR_KEY",
        )  # fmt: skip
        assert added.returncode == 0, added.stderr
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(far: StandIn, nano_home: Path) -> AsyncIterator[RunningServer]:
    running = run_server(nano_home)
    yield await asyncio.to_thread(running.__enter__)
    await asyncio.to_thread(running.__exit__, None, None, None)


async def gptoss(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = (
        os.environ | {"GPTOSS_HOME": str(home), "GPTOSS_PORT": str(free_port())} | variables
    )
    command = [sys.executable, "-m", "gptoss_local", *words]
    return await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, timeout=120
    )


async def post(server: RunningServer, path: str, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.post(server.url + path, json=body)


async def get(server: RunningServer, path: str) -> Any:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(server.url + path, headers=server.owner)
        return answer.json() if "json" in answer.headers["content-type"] else answer.text


async def test_every_dialect_answers_as_with_the_model_itself(here: RunningServer) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "stream": False}
    for path, body in [
        ("/api/chat", {"messages": [QUESTION], "options": {"temperature": 0}, "stream": False}),
        ("/v1/chat/completions", {"messages": [QUESTION]} | greedy),
        ("/v1/responses", {"input": QUESTION["content"], "store": False} | greedy),
        ("/v1/messages", {"messages": [QUESTION], "max_tokens": 300} | greedy),
        ("/v1/completions", {"prompt": "<|start|>user<|message|>Hi", "max_tokens": 9} | greedy),
    ]:
        there = await post(here, path, model="far", **body)
        local = await post(here, path, model="nano", **body)
        assert there.status_code == 200, there.text
        assert _said(there.json()) == _said(local.json())


def _said(answer: dict[str, Any]) -> str:
    """The parts of an answer that no time and no id is in."""
    kept = ("message", "choices", "content")
    found = {key: value for key, value in answer.items() if key in kept}
    output = [item.get("content") for item in answer.get("output", [])]
    assert found or output
    return json.dumps([found, output])


async def test_it_is_shown_as_what_it_is(here: RunningServer, far: StandIn) -> None:
    host = {"remote_host": far.url, "remote_model": "served"}
    tags = {tag["name"]: tag for tag in (await get(here, "/api/tags"))["models"]}
    assert host.items() <= tags["far"].items()
    assert tags["far"]["size"] == 0
    assert "remote_host" not in tags["nano"]
    assert "far" in [model["id"] for model in (await get(here, "/v1/models"))["data"]]
    assert (await get(here, "/v1/models/far"))["id"] == "far"
    await post(here, "/api/generate", model="far")
    shown = (await post(here, "/api/show", model="far")).json()
    assert host.items() <= shown.items()
    assert shown["model_info"]["gptoss.context_length"] == far.n_ctx
    running = {model["name"]: model for model in (await get(here, "/api/ps"))["models"]}
    assert host.items() <= running["far"].items()
    assert running["far"]["context_length"] == far.n_ctx
    assert 'gptoss_engine_decoded_tokens_total{model="far"}' in await get(here, "/metrics")
    assert "far" not in [model["name"] for model in (await get(here, "/api/gptoss/fits"))["models"]]
    port = here.url.rpartition(":")[2]
    for words, expected in [
        (("ls",), f"vllm at {far.url}"),
        (("ps",), far.url),
        (("show", "far"), "in the variable FAR_KEY"),
        (("upstream",), far.url),
        (("doctor",), f"vllm at {far.url} is well"),
    ]:
        printed = await gptoss(here.home, *words, GPTOSS_PORT=port)
        assert expected in printed.stdout, printed.stderr
    await post(here, "/api/generate", model="far", keep_alive=0)
    assert "far" not in [model["name"] for model in (await get(here, "/api/ps"))["models"]]


async def test_spans_of_its_requests(far: StandIn, nano_home: Path) -> None:
    """One for each try, which the upstream can continue."""
    asked = {"model": "far", "messages": [QUESTION], "stream": False}
    with run_collector() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with run_server(nano_home, variables=variables) as server:
            await post(server, "/api/chat", **asked)
            far.faults = [status(503), status(429)]
            answer = await post(server, "/api/chat", **asked)
            sent = far.headers[-3:]
            far.faults = [stream("nonsense\n")]
            await post(server, "/api/chat", **asked)
    spans = sorted(collector.named("upstream"), key=lambda span: span.begun_ns)
    assert len(spans) == 1 + 1 + 3 + 1  # the first of them was the test
    *busy, done, failed = spans[-4:]
    (request,) = (span for span in collector.spans if span.span_id == done.parent_id)
    assert request.name == "POST /api/chat"
    for n, (span, headers) in enumerate(zip([*busy, done], sent, strict=True)):
        assert headers["traceparent"].startswith(f"00-{request.trace_id}-{span.span_id}-")
        assert span.parent_id == request.span_id
        assert span.attributes.get("http.request.resend_count", 0) == n
    told = answer.json()
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": "served",
        "gen_ai.usage.input_tokens": told["prompt_eval_count"],
        "gen_ai.usage.output_tokens": told["eval_count"],
        "gptoss.upstream.kind": "vllm",
        "http.request.resend_count": 2,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": int(far.url.rpartition(":")[2].removesuffix("/v1")),
    }
    n_cached = done.attributes.pop("gen_ai.usage.cache_read.input_tokens")
    assert 0 < n_cached < told["prompt_eval_count"]
    assert (done.attributes, done.is_error) == (expected, False)
    states = [(s.attributes["error.type"], s.attributes["http.response.status_code"]) for s in busy]
    assert states == [("ServerBusyError", 503), ("ServerBusyError", 429)]
    assert (failed.attributes["error.type"], failed.is_error) == ("UpstreamError", True)
    assert KEY.encode() not in collector.raw


async def test_programs_of_tools_do_not_get_the_key(far: StandIn) -> None:
    catalog()
    assert "FAR_KEY" in os.environ
    assert "FAR_KEY" not in environment_without_secrets()


async def test_the_command_tests_an_upstream(far: StandIn, nano_home: Path, config: Path) -> None:
    far.faults = []
    tested = await gptoss(nano_home, "upstream", "test", "far", "--json")
    (told,) = json.loads(tested.stdout)["urls"]
    assert (told["is_well"], told["problem"], told["n_ctx"]) == (True, None, far.n_ctx)
    assert told["seconds"] > 0
    far.faults = [status(400)]
    failed = await gptoss(nano_home, "upstream", "test", "far")
    assert failed.returncode == 10
    assert "refuses the request" in " ".join(failed.stdout.split())
    unset = await gptoss(nano_home, "upstream", "test", "far", FAR_KEY="")
    assert (unset.returncode, "FAR_KEY is not set" in unset.stderr) == (2, True)
    shown = (
        tested.stdout + failed.stdout + failed.stderr + (config / "gptoss/models.toml").read_text()
    )
    assert KEY not in shown


async def test_entries_come_and_go_and_the_rest_of_the_file_stays(
    nano_home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gptoss" / "models.toml"
    file.parent.mkdir()
    mine = '# mine\n[[model]]\nname = "other"  # why\ncheckpoint = { repo = "me/other" }\n'
    file.write_text(mine)
    url = f"http://127.0.0.1:{free_port()}"

    async def run(*words: str) -> subprocess.CompletedProcess[str]:
        return await gptoss(nano_home, "upstream", *words, XDG_CONFIG_HOME=str(tmp_path))

    add = ("--kind", "llama-server", "--url", url, "--url", url + "/v1")
    assert (await run("add", "far", *add)).returncode == 0
    listed = json.loads((await run("ls", "--json")).stdout)["models"]
    assert [(m["name"], m["upstream"]["urls"]) for m in listed] == [("far", [url, url + "/v1"])]
    assert mine in file.read_text()
    secret = "http://me:secret@host"
    wrong = [
        (("add", "far", *add), "already"),
        (("add", "nano", *add), "already"),
        (("add", "20b", *add), "computed elsewhere"),
        (("add", "b", "--kind", "vllm", "--url", url), "needs --model"),
        (("add", "b", "--kind", "ollama", "--url", url, "--model", "m"), "kind"),
        (("add", "b", "--kind", "nim", "--url", secret, "--model", "m"), "a password"),
        (("add", "b"), "needs --url"),
        (("rm", "other"), "no model 'other' that is computed elsewhere"),
        (("test", "nano"), "model of this machine"),
        (("test",), "name a model"),
    ]
    done = await asyncio.gather(*(run(*words) for words, _ in wrong))
    for (words, expected), refused in zip(wrong, done, strict=True):
        assert refused.returncode in (2, 3), words
        assert expected in refused.stderr, words
        assert "secret" not in refused.stderr
    assert (await run("rm", "far")).returncode == 0
    assert file.read_text().strip() == mine.strip()
