"""`gptoss tune` on nano."""

import json

from tests.cli.conftest import run_cli


def test_tune(fresh: dict[str, str]) -> None:
    """It unloads the model from the server and keeps its findings, which plans use."""
    run_cli(fresh, "load", "nano")
    done = run_cli(fresh, "tune", "nano", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["tuning"]
    assert found["model"] == "nano"
    assert run_cli(fresh, "ps", "--quiet").stdout == ""
    tuning = found["measured"]["tuning"]
    plan = json.loads(run_cli(fresh, "plan", "nano", "--json").stdout)
    assert plan["plan"]["n_threads_decode"] == tuning["n_threads_decode"]
    assert any("measured here" in reason for reason in plan["reasons"])
    imagined = json.loads(run_cli(fresh, "plan", "nano", "--ram", "64GiB", "--json").stdout)
    assert not any("measured here" in reason for reason in imagined["reasons"])


def test_tune_prints_tables(fresh: dict[str, str]) -> None:
    done = run_cli(fresh, "tune", "nano")
    assert "THREADS    ANSWER TOKENS/S    PROMPT TOKENS/S" in done.stdout
    assert "TOKENS A STEP" in done.stdout
    assert "Threads: " in done.stdout
    assert "Kept in " in done.stdout
    assert run_cli(fresh, "tune", "nanno").returncode == 3
