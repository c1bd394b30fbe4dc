"""Rules for all commands, and the small ones: help, JSON, exit codes, suggestions, quick starts."""

import json
import math
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gptoss_local.api.models import ModelDetails, RunningModel
from gptoss_local.base import errors
from gptoss_local.cli._output import human_age
from gptoss_local.cli.main import COMMANDS as MAIN_COMMANDS
from gptoss_local.cli.main import make_app, make_help_app
from gptoss_local.cli.server import processor
from tests.cli.conftest import Cli
from tests.conftest import RunningServer

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = [
    command.name or command.callback.__name__
    for command in make_app().registered_commands
    if command.callback is not None
]

HEAVY = {
    "asyncio",
    "gguf",
    "httpx",
    "huggingface_hub",
    "llama_cpp",
    "numpy",
    "prompt_toolkit",
    "sqlite3",
    "starlette",
    "textual",
}


@pytest.mark.quick
@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_page(command: str) -> None:
    done = CliRunner().invoke(make_app(), [command, "--help"])
    assert done.exit_code == 0
    assert re.search(r"^Usage: ", done.output)
    assert MAIN_COMMANDS.get(command, "") in " ".join(done.output.split())
    assert re.search(rf"`(gptoss )?{command}\b", PAGE), f"docs/cli.md does not name {command}"


@pytest.mark.quick
def test_the_quick_help_is_that_of_the_commands() -> None:
    quick, whole = (CliRunner().invoke(app, ["--help"]) for app in (make_help_app(), make_app()))
    assert quick.output == whole.output
    assert quick.output.count("\n") > 25


def test_page_names_no_option_that_is_not_there() -> None:
    outputs = [CliRunner().invoke(make_app(), [command, "--help"]).output for command in COMMANDS]
    known = set(re.findall(r"--?[a-z][a-z-]*", " ".join(outputs)))
    assert set(re.findall(r"`(--?[a-z][a-z-]*)", PAGE)) <= known


@pytest.mark.parametrize(
    "arguments",
    [
        *(["ls"], ["ps"], ["show", "nano"], ["load", "nano"], ["status"], ["plan", "nano"]),
        *(["pull", "nano"], ["run", "nano", "hi"], ["logs"], ["chats"], ["doctor"], ["config"]),
    ],
    ids=" ".join,
)
def test_json(cli: Cli, arguments: list[str]) -> None:
    done = cli(*arguments, "--json")
    assert done.returncode == 0 or arguments == ["doctor"], done.stderr
    lines = done.stdout.splitlines()
    assert lines or arguments == ["logs"]
    assert {json.loads(line)["version"] for line in lines} <= {1}


@pytest.mark.quick
def test_exit_codes_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w*) ?\|", PAGE, re.MULTILINE)
    classes = [c for c in vars(errors).values() if isinstance(c, type) and hasattr(c, "exit_code")]
    assert {int(code) for code, _ in rows} == {0, 130} | {c.exit_code for c in classes}
    for code, name in rows:
        assert not name or getattr(errors, name).exit_code == int(code), name
        assert name or code in ("0", "130")


@pytest.mark.parametrize(("wrong", "right"), [("rnu", "run"), ("lst", "list"), ("stat", "start")])
def test_misspelt_command(cli: Cli, wrong: str, right: str) -> None:
    done = cli(wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(rf"Did you mean.*'{right}'", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["run", "nanno", "hi"], "nano"),
        (["show", "nanno"], "nano"),
        (["load", "gpt-oss:20"], "gpt-oss:20b"),
        (["stop", "nanno"], "nano"),
        (["rm", "-y", "nanno"], "nano"),
        (["cp", "nanno", "x"], "nano"),
        (["create", "x", "--from", "nanno"], "nano"),
        (["pull", "gpt-os:120b"], "gpt-oss:120b"),
    ],
)
def test_misspelt_model(cli: Cli, arguments: list[str], meant: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert f"Did you mean {meant}?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "most"),
    [(["--help"], 1.6), (["__complete", "installed"], 1.4), (["__complete", "loaded"], 1.4)],
)
def test_quick_start(
    server: RunningServer, tmp_path: Path, arguments: list[str], most: float
) -> None:
    """Processor time, divided by the time of a few imports on the same machine.

    Quiet, it is 1.3 times as much for help, 1.1 to complete a name, 2.1 for `ls`.
    """
    # Compiled files are kept, as they are for users, also where the developer's Python keeps none.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment = server.environment | kept
    imports_s, ours_s = math.inf, math.inf
    for _ in range(40):  # the least of each, as others disturb both
        imports_s = min(imports_s, _cpu_s(["-c", "import asyncio, json, ssl"], environment))
        ours_s = min(ours_s, _cpu_s(["-m", "gptoss_local", *arguments], environment))
        if ours_s < most * imports_s:
            return
    pytest.fail(f"{ours_s * 1000:.0f} ms, the imports {imports_s * 1000:.0f} ms")


def _cpu_s(arguments: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


RUN = (
    "import sys\nfrom gptoss_local.__main__ import main\n"
    "try:\n    main()\nexcept SystemExit:\n    pass\n"
)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        *(
            (line.split(" "), HEAVY)
            for line in ("--help", "run --help", "--version", "__complete ")
        ),
        *((line.split(" "), HEAVY) for line in ("completion bash", "__complete pull ")),
        *((line.split(" "), HEAVY) for line in ("__complete run ", "__complete stop ")),
        (["ls"], {"numpy", "llama_cpp"}),
        (["run", "nano", "hi"], {"prompt_toolkit"}),
    ],
)
def test_imports_nothing_heavy(
    server: RunningServer, arguments: list[str], heavy: set[str]
) -> None:
    """The reason for the lazy imports."""
    code = (
        f"{RUN}found = {heavy} & set(sys.modules)\nsys.exit(f'imported {{found}}' if found else 0)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=server.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_version_and_ls(cli: Cli) -> None:
    assert cli("--version").stdout == "gptoss 0.1.0 (llama-cpp-python 0.3.36)\n"
    header, row = cli("ls").stdout.splitlines()
    assert header.split() == ["NAME", "ID", "SIZE", "MODIFIED"]
    assert row.startswith("nano ")
    listed = cli("ls", "--json").stdout
    assert [m["name"] for m in json.loads(listed)["models"]] == ["nano"]
    assert cli("list", "--json").stdout == listed  # without "a minute ago"
    assert cli("ls", "--quiet").stdout == "nano\n"


def test_ps_and_stop(cli: Cli) -> None:
    assert cli("load", "nano").returncode == 0
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
