"""`gptoss eval smoke` with real servers: nano's scores, and faults that must lower them."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run_cli
from tests.conftest import RunningServer, give_nano, run_server
from tests.evals.spoiler import Spoil, spoiled
from tests.fetched import fetched

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

KEY = "secret-of-the-tests"
GOOD = (
    *("arithmetic", "format", "schema", "tool call", "two calls"),
    *("needle", "memory", "no leak"),
)
"""The categories in which nano is right."""


@dataclass
class Evaluation:
    """A user with a server and the library; all runs keep their scores in one home."""

    server: RunningServer
    library: Path

    def environment(self, **variables: str) -> dict[str, str]:
        known = {"GPTOSS_API_KEY": KEY, "PYTHONPATH": str(self.library)}
        return self.server.environment | known | variables

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gptoss_local", "eval", *arguments],
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )


@pytest.fixture(scope="module")
def evaluation(nano_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluation]:
    home = tmp_path_factory.mktemp("evals")
    give_nano(nano_home, home / "cache")
    with run_server(home, api_key=KEY) as server:
        yield Evaluation(server, fetched("inspect", "inspect-ai==0.3.285"))


@pytest.fixture(scope="module")
def saved(evaluation: Evaluation) -> dict[str, Any]:
    """nano's saved scores of two questions a category."""
    done = evaluation("smoke", "nano", "--limit", "22", "--save", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert isinstance(run, dict)
    return run


def test_scores_of_nano(saved: dict[str, Any]) -> None:
    scores = {name: (tally["right"], tally["n"]) for name, tally in saved["scores"].items()}
    assert len(scores) == 11
    assert {n for _, n in scores.values()} == {2}
    assert sum(scores[name][0] for name in GOOD) >= 14  # of 16
    assert scores["instructions"] == (0, 2)
    assert 0 < saved["total"]["low"] < saved["total"]["share"] < saved["total"]["high"] < 1
    assert "wanted" in saved["scores"]["instructions"]["miss"]
    assert saved["facts"]["llama.cpp"].endswith("CPU")


def _garbled(answer: dict[str, Any]) -> None:
    """Spell each word backwards, as if the sampler took wrong tokens."""
    for choice in answer["choices"]:
        words = (choice["message"]["content"] or "").split()
        choice["message"]["content"] = " ".join(word[::-1] for word in words)


def _leaking(answer: dict[str, Any]) -> None:
    for choice in answer["choices"]:
        message = choice["message"]
        message["content"] = "<|channel|>analysis<|message|>" + (message["content"] or "")


@pytest.mark.parametrize(
    ("spoil", "lower", "reason"),
    [
        (_garbled, "memory: 0 of 2", "wanted "),
        (_leaking, "no leak: 0 of 2", "'<|channel|>' of the harmony format"),
    ],
    ids=["broken sampler", "leaked tag"],
)
def test_faults_are_noticed(
    evaluation: Evaluation,
    saved: dict[str, Any],
    spoil: Spoil,
    lower: str,
    reason: str,
) -> None:
    with spoiled(evaluation.server.url, spoil) as port:
        done = evaluation("smoke", "nano", "--limit", "22", GPTOSS_PORT=str(port))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "scores are lower than on" in done.stderr
    assert lower in done.stderr
    assert reason in done.stdout
    assert "SAVED" in done.stdout
    assert saved["date"][:10] in done.stdout


def test_a_cut_context_is_noticed(evaluation: Evaluation, saved: dict[str, Any]) -> None:
    with run_server(evaluation.server.home, api_key=KEY, context_length="2048") as small:
        port = small.url.rpartition(":")[2]
        variables = {"GPTOSS_PORT": port, "GPTOSS_CONTEXT_LENGTH": "2048"}
        done = evaluation("smoke", "nano", "--limit", "22", **variables)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "needle: 0 of 2, saved 2 of 2" in done.stderr
    assert "Changed since: the plan." in done.stderr


@pytest.mark.parametrize(
    ("variables", "level", "said"),
    [
        ({}, "ok", "nothing has changed since."),
        ({"GPTOSS_CONTEXT_LENGTH": "2048"}, "note", "since then, the plan changed."),
    ],
)
def test_doctor_says_what_changed(
    evaluation: Evaluation, saved: dict[str, Any], variables: dict[str, str], level: str, said: str
) -> None:
    done = run_cli(evaluation.environment(**variables), "doctor", "--json")
    (found,) = (f for f in json.loads(done.stdout)["findings"] if f["name"] == "scores")
    day = saved["date"][:10]
    text = f"The scores of `gptoss eval smoke nano` were saved on {day}"
    assert found["text"].startswith(text)
    assert found["text"].endswith(said)
    assert found["level"] == level


def test_another_server_beside_ours(evaluation: Evaluation, saved: dict[str, Any]) -> None:
    with spoiled(evaluation.server.url, _garbled) as port:
        url = f"http://127.0.0.1:{port}/v1/"
        arguments = ("--against", url, "--key-env", "GPTOSS_API_KEY", "--limit", "11")
        done = evaluation("smoke", "nano", *arguments, "--json")
        unnamed = evaluation("smoke", "nano", "--against", url)
    assert done.returncode == 0, done.stderr
    ours, other = json.loads(done.stdout)["runs"]
    assert ours["scores"]["memory"]["right"] == 1
    assert other["scores"]["memory"]["right"] == 0
    assert (ours["url"], other["url"]) == ("", url.removesuffix("/v1/"))
    assert unnamed.returncode == 7
    assert "/v1/models does not list models: " in unnamed.stderr


def test_an_interrupted_run_goes_on(evaluation: Evaluation) -> None:
    arguments = ["eval", "smoke", "nano", "--limit", "15", "--effort", "low"]
    command = [sys.executable, "-m", "gptoss_local", *arguments]
    begun = subprocess.Popen(
        command, env=evaluation.environment(), stderr=subprocess.PIPE, text=True
    )
    assert begun.stderr is not None
    said = ""
    while not re.search(r"Samples: +[1-9]", said) and begun.poll() is None:
        said += begun.stderr.readline()
    begun.send_signal(signal.SIGINT)
    rest = begun.communicate()[1]
    assert begun.returncode == 130, said + rest
    assert "Interrupted. Run the same command again to resume." in rest
    again = evaluation(*arguments[1:], "--json")
    assert again.returncode == 0, again.stderr
    assert "Continuing the run of 20" in again.stderr
    (run,) = json.loads(again.stdout)["runs"]
    assert sum(tally["n"] for tally in run["scores"].values()) == 15


def test_nothing_is_fetched_silently(evaluation: Evaluation) -> None:
    done = evaluation("smoke", "nano", PYTHONPATH="")
    assert done.returncode == 2
    assert "pip install 'gptoss-local[eval]'" in done.stderr
    done = evaluation("gpqa", "nano")
    assert done.returncode == 2
    assert "--yes downloads 198 questions (1.4 MB)" in done.stderr
