"""`gptoss eval api`: nano's server passes, and each shape that is broken on purpose is named."""

import json
import os
from typing import Any

import pytest

from tests.cli.conftest import run_cli
from tests.conftest import RunningServer
from tests.evals.spoiler import Spoil, spoiled


def test_our_server_passes(server: RunningServer) -> None:
    done = run_cli(server.environment, "eval", "api", "nano", "--json")
    checks = json.loads(done.stdout)["checks"]
    assert [check for check in checks if not check["passed"]] == []
    assert len(checks) > 40
    assert done.returncode == 0, done.stderr


def _of_choice(spoil: Spoil) -> Spoil:
    return lambda answer: spoil(answer["choices"][0]["message"])


def _leak(message: dict[str, Any]) -> None:
    message["content"] = "<|channel|>final" + (message["content"] or "")


def _break_arguments(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] += "}"


def _miscount(answer: dict[str, Any]) -> None:
    answer["usage"]["total_tokens"] += 1


def _lose_usage(answer: dict[str, Any]) -> None:
    del answer["usage"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_of_choice(_leak), "chat: text: a tag of the harmony format is in '<|channel|>final"),
        (_of_choice(_break_arguments), "chat: get_weather: the answer has another form: JSOND"),
        (_miscount, "chat: text: usage does not add up"),
        (_lose_usage, "chat: text: the answer has another form: KeyError('usage')"),
    ],
)
def test_a_broken_shape_is_named(server: RunningServer, spoil: Spoil, said: str) -> None:
    with spoiled(server.url, spoil) as port:
        url = f"http://127.0.0.1:{port}"
        key = server.owner["authorization"].removeprefix("Bearer ")
        arguments = ("api", "nano", "--url", url, "--key-env", "KEY")
        done = run_cli(server.environment | {"KEY": key}, "eval", *arguments)
    assert done.returncode == 1, done.stderr
    assert f"FAILED  {said}" in done.stdout
    assert "passed  responses: text\n" in done.stdout


def test_a_server_that_is_not_there() -> None:
    arguments = ("eval", "api", "--url", "http://127.0.0.1:9")
    done = run_cli(dict(os.environ), *arguments)
    assert done.returncode == 7
    assert "http://127.0.0.1:9/v1/models does not list models" in done.stderr
