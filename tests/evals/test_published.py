"""Published questions, by a stand-in of inspect-evals with a few rows of our own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import run_cli
from tests.conftest import give_nano, run_server
from tests.fetched import fetched

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

AIME = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate

@task
def aime2025():
    sums = [Sample(id=n, input=f"What is {n} + 3?", target=str(n + 3)) for n in range(12, 16)]
    return Task(dataset=sums, solver=generate(), scorer=match(numeric=True))
"""
IFEVAL = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, mean, scorer

@scorer(metrics={"prompt_level_strict": [mean()], "inst_level_strict": [mean()]})
def kept():
    async def score(state, target):
        is_right = target.text in state.output.completion
        return Score(value={"prompt_level_strict": is_right, "inst_level_strict": 1})
    return score

@task
def ifeval():
    asked = [Sample(id=1, input="Reply with exactly: copper", target="copper")]
    asked += [Sample(id=2, input="Reply with exactly: river", target="lantern")]
    return Task(dataset=asked, scorer=kept())
"""
GPQA = """
def gpqa_diamond():
    raise ConnectionError("no route to the questions")
"""


@pytest.fixture
def environment(nano_home: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    home, library = tmp_path / "home", tmp_path / "library"
    give_nano(nano_home, home / "cache")
    for name, text in {"aime2025": AIME, "ifeval": IFEVAL, "gpqa": GPQA}.items():
        (library / "inspect_evals" / name).mkdir(parents=True)
        (library / "inspect_evals" / name / "__init__.py").write_text(text)
    with run_server(home) as server:
        made = run_cli(server.environment, "cp", "nano", "gpt-oss:20b")
        assert made.returncode == 0, made.stderr
        folders = f"{library}:{fetched('inspect', 'inspect-ai==0.3.285')}"
        yield server.environment | {"PYTHONPATH": folders}


def test_scores_and_questions_that_cannot_be_fetched(environment: dict[str, str]) -> None:
    def evaluate(name: str, *options: str, code: int = 0) -> str:
        command = ("eval", name, "gpt-oss:20b", "--yes", *options)
        done = run_cli(environment, *command, is_process=True)  # with packages of its own
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    shown = evaluate("aime25", "--effort", "high", "--limit", "3", "--quiet")
    titles, row = shown.splitlines()
    assert "OPENAI" in titles
    assert row.split()[:4] == ["aime25", "3", "of", "3"]
    assert "86 %" in row
    (run,) = json.loads(evaluate("ifeval", "--json", "--quiet"))["runs"]
    assert (run["scores"]["ifeval"]["right"], run["scores"]["ifeval"]["n"]) == (1, 2)
    said = evaluate("gpqa", code=4)
    assert "the questions of gpqa_diamond are not here: no route to the questions" in said
    assert "bfcl needs inspect_evals.bfcl, which is not installed" in evaluate("bfcl", code=2)
