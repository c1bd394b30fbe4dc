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
