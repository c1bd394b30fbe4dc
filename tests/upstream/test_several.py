"""Several PCs with gptoss behind one, without a cluster."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.runner.upstream import connection
from gptoss_local.runner.upstream.connection import Replica, UpstreamConnection
from tests.conftest import RunningServer, run_server
from tests.nano.golden import CONVERSATIONS
from tests.server.dialects import user

N_TURNS = 20
QUESTIONS = ("What is 3 plus 4?", "And the capital of France?", "Count to 3", "hello")


class Chat:
    def __init__(self, server: RunningServer, subject: str) -> None:
        self._server = server
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": subject * 130}]

    def turn(self, n: int) -> float:
        """Ask, and return the share of the prompt that was in the cache."""
        self._messages.append(user(QUESTIONS[n % len(QUESTIONS)]))
        asked = {"model": "team", "messages": self._messages, "stream": False}
        url, options = f"{self._server.url}/api/chat", {"temperature": 0}
        answer = httpx.post(url, json=asked | {"options": options}, timeout=120, trust_env=False)
        reply = answer.raise_for_status().json()
        assert reply["message"]["content"]
        self._messages.append(reply["message"])
        return float(reply.get("prompt_cached_count", 0) / reply["prompt_eval_count"])


def n_answered(server: RunningServer) -> int:
    text = httpx.get(f"{server.url}/metrics", trust_env=False).text
    return sum(map(int, re.findall(r"gptoss_answers_total\{.*\} (\d+)", text)))


@pytest.fixture(scope="module")
def pcs(
    nano_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningServer, list[RunningServer]]]:
    """A server, and the two that compute its model `team`."""
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        run_server(nano_home) as one,
        run_server(nano_home) as two,
    ):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        add = ("upstream", "add", "team", "--url", one.url, "--url", two.url, "--model", "nano")
        command = [sys.executable, "-m", "gptoss_local", *add]
        subprocess.run(command, env=os.environ | {"GPTOSS_HOME": str(nano_home)}, check=True)
        with run_server(nano_home) as front:
            yield front, [one, two]


@pytest.mark.parametrize(
    "more",
    [
        {"options": {"temperature": 0}},
        {"options": {"temperature": 1, "seed": 3, "top_k": 5, "presence_penalty": 0.5}},
        {"options": {"seed": 3, "repeat_penalty": 1.5, "repeat_last_n": -1}},
        {"options": {"temperature": 0}, "format": {"enum": ["Paris", "Rome"]}},
    ],
    ids=["greedy", "drawn", "penalties", "format"],
)
def test_answers_are_those_of_the_model_itself(
    pcs: tuple[RunningServer, list[RunningServer]], more: dict[str, Any]
) -> None:
    front, _ = pcs
    replies = []
    for name in ("team", "nano"):
        body = {"model": name, "messages": [user(QUESTIONS[1])], "stream": False} | more
        reply = httpx.post(f"{front.url}/api/chat", json=body, timeout=120, trust_env=False)
        replies.append(reply.raise_for_status().json())
    assert replies[0]["message"] == replies[1]["message"]
    assert replies[0]["eval_count"] == replies[1]["eval_count"]


def test_token_ids_in_and_out(pcs: tuple[RunningServer, list[RunningServer]]) -> None:
    """As vLLM's clients send them, streamed or not; never on to another server, or in a circle."""
    front, _ = pcs
    golden = CONVERSATIONS[0]
    body: dict[str, Any] = {"prompt": golden["prompt"], "return_token_ids": True, "temperature": 0}

    def post(**more: Any) -> httpx.Response:
        url = f"{front.url}/v1/completions"
        return httpx.post(url, json=body | more, timeout=120, trust_env=False)

    whole = post(model="nano").raise_for_status().json()
    assert whole["choices"][0]["token_ids"] == golden["answer"]
    streamed = post(model="nano", stream=True).raise_for_status().text
    found = re.findall(r'"token_ids":\[(\d+)\]', streamed)
    assert list(map(int, found)) == golden["answer"]
    refused = post(model="team")
    assert refused.status_code == 400
    assert "computed elsewhere" in refused.text


def test_prefixes_of_callers_stay_apart_there(
    pcs: tuple[RunningServer, list[RunningServer]],
) -> None:
    _, (server, _) = pcs
    ids = [*range(1000, 1400)]
    cached = []
    for salt in ("one", "one", "other"):
        body = {"model": "nano", "prompt": ids, "return_token_ids": True, "cache_salt": salt}
        url = f"{server.url}/v1/completions"
        reply = httpx.post(url, json=body | {"max_tokens": 1}, timeout=60, trust_env=False)
        usage = reply.raise_for_status().json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[1] > 300
    assert cached[0] == cached[2] == 0


def test_chats_stay_where_they_are_read_and_outlive_a_pc(
    pcs: tuple[RunningServer, list[RunningServer]],
) -> None:
    front, servers = pcs
    chats = [Chat(front, "The old river. "), Chat(front, "A quiet house. ")]
    for chat in chats:
        chat.turn(0)
    for n in range(1, N_TURNS):
        assert min(chat.turn(n) for chat in chats) >= 0.95
    assert min(map(n_answered, servers)) >= N_TURNS
    servers[0].process.kill()
    for chat in chats:
        chat.turn(N_TURNS)
    assert min(chat.turn(N_TURNS + 1) for chat in chats) >= 0.95


@pytest.fixture
def two() -> UpstreamConnection:
    return UpstreamConnection(
        "far", UpstreamAddress(kind="gptoss", urls=("http://a", "http://b"), model="nano")
    )


def ask(two: UpstreamConnection, prompt: list[int]) -> Replica:
    with (replica := two.choose(prompt)).busy():
        return replica


def test_the_longest_prefix_wins_unless_that_address_has_more_to_do(
    two: UpstreamConnection,
) -> None:
    prompt, other = list(range(1000)), list(range(1000, 2000))
    first, second = ask(two, prompt), ask(two, other)
    assert {first, second} == set(two.replicas)
    for n in (1, 200, 3000):
        assert ask(two, prompt + [7] * n) is first
        assert ask(two, other + [7] * n) is second
    long = list(range(60_000))
    assert ask(two, long) is first  # which has read its beginning
    with first.busy():
        assert ask(two, [*long, 1]) is first
        assert ask(two, [*prompt, 1]) is second
    assert ask(two, [*prompt, 1, *prompt]) is second  # by now
    second.failed_s = time.monotonic()
    assert ask(two, [*prompt, 1, *prompt]) is first


def test_what_is_remembered_is_bounded(
    two: UpstreamConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_N_BLOCKS", 40)
    prompts = [[n, *range(2000)] for n in range(9)]
    asked = [ask(two, prompt) for prompt in prompts]
    assert len(two._blocks) <= 40
    assert [ask(two, [*prompt, 1]) for prompt in prompts[-2:]] == asked[-2:]
