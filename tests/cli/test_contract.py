"""Rules for all commands: help, versioned JSON, exit codes, suggestions, a quick start."""

import json
import math
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gptoss_local.base import errors
from gptoss_local.cli.main import COMMANDS as MAIN_COMMANDS
from gptoss_local.cli.main import make_app, make_help_app
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


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["run", "--help"], ["--version"], ["completion", "bash"]),
        *(["__complete", ""], ["__complete", "pull", ""]),
        *(["__complete", "run", ""], ["__complete", "stop", ""]),
    ],
)
def test_imports_nothing_heavy(server: RunningServer, arguments: list[str]) -> None:
    """The reason for the lazy imports."""
    code = (
        "import sys\nfrom gptoss_local.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"found = {HEAVY} & set(sys.modules)\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=server.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_one_question_imports_no_editor_of_lines(server: RunningServer) -> None:
    code = (
        "import sys\nfrom gptoss_local.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit('prompt_toolkit' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "run", "nano", "hi"]
    assert subprocess.run(command, env=server.environment).returncode == 0
