"""`gptoss launch` with the real programs: each does two tasks with its tools, and says so.

The server wants an API key, and the model is scripted: it calls the program's own tools to write a
file by a command, or to edit one, and answers after the results. `test_clients.py` says how the
programs are fetched.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gptoss_local.cli.launch.agents import AGENTS
from gptoss_local.harmony import Vocabulary
from tests.clients.test_clients import PROGRAMS, new_user
from tests.conftest import RunningServer
from tests.scripted_engine import Reply, Script, answer, calls, run_scripted_server

ASK = "Write the file."
DONE = "The file is written."
SHELL = "printf made > made.txt"
LIMIT_S = 180


class Run(NamedTuple):
    """Arguments of the program, and the model's replies to the question and to the result."""

    arguments: list[str]
    reply: Reply
    last: Reply = answer(DONE)


def _run(arguments: list[str], tool: str, **given: Any) -> Run:
    return Run(arguments, calls(tool, given))


RUNS = {
    "aider": Run(
        ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--message", ASK],
        answer("made.txt\n```\nmade\n```\n"),
    ),
    "claude": _run(
        ["-p", ASK, "--allowedTools", "Bash,Edit,Read"],
        "Bash",
        command=SHELL,
        description="Write it",
    ),
    "cline": _run([ASK], "run_commands", commands=[SHELL]),
    "codex": _run(
        ["exec", "--skip-git-repo-check", "-s", "danger-full-access", ASK],
        "exec_command",
        cmd=SHELL,
    ),
    "continue": _run(["-p", "--auto", ASK], "Bash", command=SHELL),
    "copilot": _run(
        ["-s", "--disable-builtin-mcps", "--allow-all-tools", "-p", ASK],
        "bash",
        command=SHELL,
        description="Write it",
    ),
    "gptme": Run(
        [
            *("--tools", "shell,complete,patch", "--tool-format", "tool"),
            *("--non-interactive", "--no-confirm", ASK),
        ],
        calls("shell", {"command": SHELL}),
        calls("complete", {}),  # otherwise it asks itself to continue
    ),
    "hermes": _run(["-z", ASK], "terminal", command=SHELL),
    "openclaw": _run(["agent", "exec", ASK], "exec", command=SHELL),
    "opencode": _run(["run", ASK], "bash", command=SHELL, description="Write it"),
    "pi": _run(["-p", "--no-session", ASK], "bash", command=SHELL),
    "qwen": _run(
        ["--approval-mode", "yolo", "-p", ASK],
        "run_shell_command",
        command=SHELL,
        is_background=False,
    ),
}


OLD, NEW = "one\ntwo\nthree\n", "one\n2\nthree\n"


def edits(path: str) -> dict[str, list[Reply]]:
    """Return each program's own way to edit a file; some want to read it first."""
    replace = {"old_string": "two", "new_string": "2"}
    short = {"edits": [{"oldText": "two", "newText": "2"}]}
    patch = "<<<<<<< ORIGINAL\ntwo\n=======\n2\n>>>>>>> UPDATED"
    v4a = "*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n+2\n*** End Patch\n"
    return {
        "aider": [answer(f"notes.txt\n```\n{NEW}```\n")],
        "claude": [
            calls("Read", {"file_path": path}),
            calls("Edit", {"file_path": path} | replace),
        ],
        "cline": [calls("editor", {"path": path, "old_text": "two", "new_text": "2"})],
        "codex": [calls("apply_patch", {"input": v4a})],
        "continue": [
            calls("Read", {"filepath": path}),
            calls("MultiEdit", {"file_path": path, "edits": [replace]}),
        ],
        "copilot": [calls("edit", {"path": path, "old_str": "two", "new_str": "2"})],
        "gptme": [calls("patch", {"path": path, "patch": patch}), calls("complete", {})],
        "hermes": [calls("patch", {"mode": "replace", "path": path} | replace)],
        "openclaw": [calls("edit", {"path": path} | short)],
        "opencode": [
            calls("read", {"filePath": path}),
            calls("edit", {"filePath": path, "oldString": "two", "newString": "2"}),
        ],
        "pi": [calls("edit", {"path": path} | short)],
        "qwen": [
            calls("read_file", {"file_path": path}),
            calls("edit", {"file_path": path} | replace),
        ],
    }


@pytest.fixture
def user(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A user without any settings."""
    with new_user(tmp_path) as environment:
        yield environment | {"PYTHONPATH": str(Path(__file__).parents[2])}


def _reaching(server: RunningServer, user: dict[str, str]) -> dict[str, str]:
    names = ("GPTOSS_HOME", "GPTOSS_PORT")
    return user | {n: server.environment[n] for n in names} | {"GPTOSS_API_KEY": "secret"}


def _own_programs(agent: str, user: dict[str, str]) -> dict[str, str]:
    """Put the folder of a program that needs a node of its own first."""
    folder = Path(__file__).parent / agent / "node_modules" / ".bin"
    return user | {"PATH": f"{folder}{os.pathsep}{user['PATH']}"}


def _launch(
    words: list[str],
    replies: list[Reply],
    home: Path,
    vocabulary: Vocabulary,
    user: dict[str, str],
) -> str:
    """Let a program do a task with a model that replies so; returns what it printed."""
    agent = words[0]
    if shutil.which(AGENTS[agent].program, path=PROGRAMS) is None:
        pytest.skip("not fetched: see the top of test_clients.py")
    script = Script(vocabulary)
    script.otherwise(*replies)
    with run_scripted_server(home, script, api_key="secret") as server:
        done = subprocess.run(
            [sys.executable, "-m", "gptoss_local", "launch", *words],
            env=_own_programs(agent, _reaching(server, user)),
            cwd=Path(user["HOME"], "work"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


def _work(
    agent: str, replies: list[Reply], home: Path, vocabulary: Vocabulary, user: dict[str, str]
) -> Path:
    """Let a program use a tool; returns the folder where it worked."""
    words = [agent, "--model", "nano", "--yes", "--", *RUNS[agent].arguments]
    printed = _launch(words, replies, home, vocabulary, user)
    if agent not in ("aider", "gptme"):  # which show nothing after the file
        assert DONE in printed
    return Path(user["HOME"], "work")


@pytest.mark.nightly
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("agent", RUNS, ids=str)
def test_program_uses_a_tool(
    agent: str, nano_home: Path, vocabulary: Vocabulary, user: dict[str, str]
) -> None:
    run = RUNS[agent]
    work = _work(agent, [run.reply, run.last], nano_home, vocabulary, user)
    assert (work / "made.txt").read_text().strip() == "made"


@pytest.mark.nightly
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("agent", RUNS, ids=str)
def test_program_edits_a_file(
    agent: str, nano_home: Path, vocabulary: Vocabulary, user: dict[str, str]
) -> None:
    notes = Path(user["HOME"], "work", "notes.txt")
    notes.write_text(OLD)
    _work(agent, [*edits(str(notes))[agent], answer(DONE)], nano_home, vocabulary, user)
    assert notes.read_text() == NEW


@pytest.mark.nightly
@pytest.mark.timeout(2 * LIMIT_S)
def test_llm_answers(nano_home: Path, vocabulary: Vocabulary, user: dict[str, str]) -> None:
    words = ["llm", "--model", "nano", "--", ASK]
    printed = _launch(words, [answer(DONE)], nano_home, vocabulary, user)
    assert printed.strip() == DONE
