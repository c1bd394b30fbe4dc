"""`gptoss config`: values with their sources, and no secret on the screen."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.conftest import run_cli

pytestmark = pytest.mark.quick


def test_values_and_sources() -> None:
    settings = {"GPTOSS_API_KEY": "hunter2", "OLLAMA_KEEP_ALIVE": "5m", "GPTOSS_PROT": "1"}
    done = run_cli(os.environ | settings, "config")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["keep_alive_s", "300.0", "OLLAMA_KEEP_ALIVE"] in lines
    assert ["api_key", "(set)", "GPTOSS_API_KEY"] in lines
    assert ["max_queue", "512", "default"] in lines
    assert "hunter2" not in done.stdout
    assert "GPTOSS_PROT is set, but is not a setting" in done.stderr

    listed = json.loads(run_cli(os.environ | settings, "config", "--json").stdout)["settings"]
    assert {
        "name": "keep_alive_s",
        "value": 300.0,
        "meaning": "",
        "source": "OLLAMA_KEEP_ALIVE",
    } in listed


def test_what_is_left_to_gptoss_is_said() -> None:
    shown = run_cli(dict(os.environ), "config").stdout
    assert re.search(r"^context_length +0 \(what fits\) +default$", shown, re.MULTILINE)
    assert re.search(r"^prefix_disk_bytes +4,096 MiB +default$", shown, re.MULTILINE)
    assert "null" not in shown
    assert re.search(r"^theme +textual-dark +default$", shown, re.MULTILINE)
    assert re.search(r"^api_key +\(none\) +default$", shown, re.MULTILINE)
    assert not re.search(r"^\w+ {20,}default$", shown, re.MULTILINE)  # an empty value
    assert run_cli(dict(os.environ), "config", "context_length").stdout == "0\n"
    listed = json.loads(run_cli(dict(os.environ), "config", "threads", "--json").stdout)
    assert listed["settings"][0]["meaning"].startswith("one per physical core")
    set_ = run_cli(os.environ | {"GPTOSS_THREADS": "3"}, "config").stdout
    assert re.search(r"^threads +3 +GPTOSS_THREADS$", set_, re.MULTILINE)


def test_what_keys_asks_for_can_be_pasted_into_the_settings(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    environment.pop("GPTOSS_API_KEYS_FILE", None)
    refused = run_cli(environment, "keys", "add", "ada")
    assert refused.returncode == 2
    hint = re.search(r"Add (api_keys_file = '.*') to (.*), or", refused.stderr)
    assert hint is not None
    Path(hint[2]).parent.mkdir(parents=True, exist_ok=True)
    Path(hint[2]).write_text(f"{hint[1]}\n")
    assert run_cli(environment, "keys", "add", "ada").returncode == 0
