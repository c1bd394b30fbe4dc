"""`gptoss config`: values with their sources, and no secret on the screen."""

import json
import os

from tests.cli.conftest import run_cli


def test_values_and_sources() -> None:
    settings = {"GPTOSS_API_KEY": "hunter2", "OLLAMA_KEEP_ALIVE": "5m", "GPTOSS_PROT": "1"}
    done = run_cli(os.environ | settings, "config")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["keep_alive_s", "300.0", "OLLAMA_KEEP_ALIVE"] in lines
    assert ["api_key", "(set)", "GPTOSS_API_KEY"] in lines
    assert ["max_queue", "512", "default"] in lines
    assert "hunter2" not in done.stdout
    assert "GPTOSS_PROT is set, but is no setting" in done.stderr

    listed = json.loads(run_cli(os.environ | settings, "config", "--json").stdout)["settings"]
    assert {"name": "keep_alive_s", "value": 300.0, "source": "OLLAMA_KEEP_ALIVE"} in listed


def test_one_value_and_a_misspelt_one() -> None:
    environment = dict(os.environ)
    assert run_cli(environment, "config", "max_queue").stdout == "512\n"
    done = run_cli(environment, "config", "max_queu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean max_queue?" in done.stderr


def test_a_bad_value_is_refused_by_its_source() -> None:
    done = run_cli(os.environ | {"GPTOSS_PORT": "eleven"}, "config")
    assert done.returncode == 2
    assert "GPTOSS_PORT: Expected `int`" in done.stderr
