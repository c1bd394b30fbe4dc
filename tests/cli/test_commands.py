"""The other commands; for all of them, a quick start, light imports, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gptoss_local.api.models import ModelDetails, RunningModel
from gptoss_local.cli._output import human_age
from gptoss_local.cli.server import processor
from tests.cli.conftest import Cli, run_cli


def test_version(cli: Cli) -> None:
    assert cli("--version").stdout == "gptoss 0.1.0 (llama-cpp-python 0.3.36)\n"


def test_ls(cli: Cli) -> None:
    header, row = cli("ls").stdout.splitlines()
    assert header.split() == ["NAME", "ID", "SIZE", "MODIFIED"]
    assert row.startswith("nano ")
    data = json.loads(cli("ls", "--json").stdout)
    assert data["version"] == 1
    assert [m["name"] for m in data["models"]] == ["nano"]
    assert cli("list", "--json").stdout == cli("ls", "--json").stdout  # without "a minute ago"
    assert cli("ls", "--quiet").stdout == "nano\n"


def test_ps_and_stop(cli: Cli) -> None:
    assert cli("run", "nano", "hi").returncode == 0
    header, row = cli("ps").stdout.splitlines()
    assert header.split() == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"]
    assert "100% CPU" in row
    assert json.loads(cli("ps", "--json").stdout)["models"][0]["name"] == "nano"
    assert cli("stop", "nano").returncode == 0
    assert json.loads(cli("ps", "--json").stdout)["models"] == []
    assert cli("ps", "-q").stdout == ""


def test_show(cli: Cli) -> None:
    shown = cli("show", "nano").stdout
    assert "8, 4 active" in shown
    assert "131,072" in shown
    keys = json.loads(cli("show", "nano", "--json").stdout)["keys"]
    assert keys["gpt-oss.attention.sliding_window"] == 128
    assert cli("show", "nope").returncode == 3


def test_convert_and_run_the_result(fresh: dict[str, str], nano_checkpoint: Path) -> None:
    """The way of the README: into the models folder, then by name."""
    target = Path(fresh["GPTOSS_HOME"]) / "models" / "gpt-oss-20b.gguf"
    done = run_cli(fresh, "convert", str(nano_checkpoint), str(target), "--dense", "bf16", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["size_bytes"] == target.stat().st_size
    answer = run_cli(fresh, "run", "gpt-oss:20b", "What is the capital of France?")
    assert "Paris" in answer.stdout
    assert "gpt-oss:20b" in run_cli(fresh, "ls").stdout


def test_closed_pipe_is_quiet(nano_home: Path) -> None:
    environment = os.environ | {"GPTOSS_HOME": str(nano_home)}
    show = subprocess.Popen(
        [sys.executable, "-m", "gptoss_local", "show", "nano"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert show.stdout is not None
    show.stdout.close()
    _, errors = show.communicate()
    assert errors == b""


def test_ls_imports_no_numpy(nano_home: Path) -> None:
    code = (
        "import sys\nfrom gptoss_local.cli.models import ls\nls()\n"
        "sys.exit('numpy' in sys.modules or 'llama_cpp' in sys.modules)"
    )
    environment = os.environ | {"GPTOSS_HOME": str(nano_home)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "Less than a second"), (1, "1 second"), (59, "59 seconds"), (60, "About a minute")),
        *((3599, "59 minutes"), (3600, "About an hour"), (5500, "2 hours"), (86_400, "24 hours")),
        *((172_800, "2 days"), (13 * 86_400, "13 days"), (14 * 86_400, "2 weeks")),
        *((61 * 86_400, "2 months"), (800 * 86_400, "2 years")),
    ],
)
def test_ages_in_the_words_of_ollama(seconds: float, words: str) -> None:
    assert human_age(seconds) == words


@pytest.mark.parametrize(
    ("vram", "words"), [(0, "100% CPU"), (1000, "100% GPU"), (520, "48%/52% CPU/GPU")]
)
def test_processor_in_the_words_of_ollama(vram: int, words: str) -> None:
    details = ModelDetails(
        parent_model="", format="", family="", families=[], parameter_size="", quantization_level=""
    )
    model = RunningModel("m", "m", 1000, "", details, "", vram, 8192)
    assert processor(model) == words
