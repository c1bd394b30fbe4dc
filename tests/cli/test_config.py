"""`gptoss config` and `gptoss presets`: values with their sources, and no secret on the screen."""

import json
import os
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from gptoss_local.talk.presets import Preset, presets_path, save_preset
from tests.cli.conftest import in_terminal, run_cli

pytestmark = pytest.mark.quick


def test_values_and_sources() -> None:
    settings = {"GPTOSS_API_KEY": "hunter2", "OLLAMA_KEEP_ALIVE": "5m", "GPTOSS_PROT": "1"}
    done = run_cli(os.environ | settings, "config")
    assert done.returncode == 0, done.stderr
    for row in (
        "keep_alive_s +300.0 +OLLAMA_KEEP_ALIVE",
        r"api_key +\(set\) +GPTOSS_API_KEY",
        "max_queue +512 +default",
        r"context_length +0 \(what fits\) +default",
        "prefix_disk_bytes +4,096 MiB +default",
        "theme +textual-dark +default",
        r"searxng_url +\(none\) +default",
        r"work_folder +\(none\) +default",
    ):
        assert re.search(rf"^{row}$", done.stdout, re.MULTILINE), row
    assert "hunter2" not in done.stdout
    assert "null" not in done.stdout
    assert not re.search(r"^\w+ {20,}default$", done.stdout, re.MULTILINE)  # an empty value
    assert "GPTOSS_PROT is set, but is not a setting" in done.stderr
    listed = json.loads(run_cli(os.environ | settings, "config", "--json").stdout)["settings"]
    kept = {"name": "keep_alive_s", "value": 300.0, "meaning": "", "source": "OLLAMA_KEEP_ALIVE"}
    assert kept in listed
    threads = next(each for each in listed if each["name"] == "threads")
    assert threads["meaning"].startswith("one per physical core")
    assert run_cli(dict(os.environ), "config", "context_length").stdout == "0\n"


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_rows_fit_the_terminal_and_words_stay_whole(columns: int, tmp_path: Path) -> None:
    config = tmp_path / "gptoss" / "config.toml"
    config.parent.mkdir()
    config.write_text(_TOOL)
    home = {"XDG_CONFIG_HOME": str(tmp_path), "GPTOSS_MAX_LOADED_MODELS": "3", "NO_COLOR": "1"}
    commands = {
        ("config",): ("127.0.0.1", "GPTOSS_MAX_LOADED_MODELS", "config.toml", '"{city}",',
                      '"/home/me/tools/weather.py",' if columns > 60 else "weather"),
        ("plan", "20b", "--gpu", "RTX 4090"): ("prompts", "programs", "(RTX", "o driver or engine"),
        ("doctor",): ("llama.cpp:", "available."),
    }  # fmt: skip
    for command, words in commands.items():
        text = in_terminal(os.environ | home, *command, columns=columns)
        shown = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
        named = [row for row in shown if str(tmp_path) not in row]  # a path may be any length
        assert max(map(cell_len, named)) <= columns, command
        assert not [word for word in words if not any(word in row for row in shown)], shown
    piped = run_cli(os.environ | home, "config").stdout
    assert re.search(r"^tools +\{\"weather\".{250,} /", piped, re.MULTILINE)


_TOOL = """
[tools.weather]
command = ["python3", "/home/me/tools/weather.py", "{city}", "--units", "{units}"]
description = "Look up the current weather in a city; returns temperature and conditions"
parameters = { type = "object", properties = { city = { type = "string" } }, required = ["city"] }
"""


def test_what_keys_asks_for_can_be_pasted_into_the_settings(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
    refused = run_cli(environment, "keys", "add", "ada")
    assert refused.returncode == 2
    hint = re.search(r"Add (api_keys_file = '.*') to (.*), or", refused.stderr)
    assert hint is not None
    Path(hint[2]).parent.mkdir(parents=True, exist_ok=True)
    Path(hint[2]).write_text(f"{hint[1]}\n")
    assert run_cli(environment, "keys", "add", "ada").returncode == 0


def test_presets_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_preset("reviewer", Preset(system="You review code.\nBe terse.", options={"seed": 7}))
    save_preset("日本", Preset(effort="low"))
    done = run_cli(dict(os.environ), "presets")
    assert [row.split(maxsplit=4) for row in done.stdout.splitlines()] == [
        ["NAME", "EFFORT", "OPTIONS", "SYSTEM"],
        ["policy", "medium", "temperature", "0.0"],
        ["reviewer", "-", "seed", "7", "You review code. Be terse."],
        ["日本", "low", "-"],
    ]
    assert str(presets_path()) in done.stderr
    data = json.loads(run_cli(dict(os.environ), "presets", "--json").stdout)
    assert (data["version"], data["file"]) == (1, str(presets_path()))
    system = "You review code.\nBe terse."
    reviewer = {"name": "reviewer", "system": system, "effort": None, "options": {"seed": 7}}
    assert data["presets"][1] == reviewer
