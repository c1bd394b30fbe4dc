"""Completion scripts, in the shells that they are for."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gptoss_local.cli.main import COMMANDS
from tests.cli.conftest import run_cli
from tests.conftest import RunningServer

CASES = [
    ("gptoss sta", ["status"]),  # aliases are not offered
    ("gptoss run mi", ["mine:7b"]),
    ("gptoss run mine:", ["mine:7b"]),
    ("gptoss run nano ", []),
    ("gptoss run --effort ", ["high", "low", "medium"]),
    ("gptoss run --effort low n", ["nano"]),
    ("gptoss chat --effort ", ["high", "low", "medium"]),
    ("gptoss rm nano m", ["mine:7b"]),
    ("gptoss stop ", ["nano"]),
    ("gptoss pull gpt-oss:", ["gpt-oss:120b", "gpt-oss:20b"]),
    ("gptoss create x --from m", ["mine:7b"]),
    ("gptoss run --hide", ["--hide-reasoning", "--hidethinking"]),
    ("gptoss completion z", ["zsh"]),
    ("gptoss launch cod", ["codex"]),
    ("gptoss launch codex --model n", ["nano"]),
    ("gptoss run far", ["far:20b"]),
    ("gptoss chat f", ["far:20b"]),
    ("gptoss rm far", []),  # `upstream rm` removes it
    ("gptoss upstream rm ", ["far:20b"]),
    ("gptoss upstream add x --kind v", ["vllm"]),
    ("gptoss run --preset ", ["policy", "reviewer"]),
    ("gptoss plan nano --preset l", ["latency"]),
    ("gptoss chat --preset r", ["reviewer"]),
    ("gptoss run nano --tools p", ["python"]),
    ("gptoss run --tools read_file,b", ["read_file,browser"]),
    ("gptoss run --tools python,py", []),
    ("gptoss chat --chat ", ["1"]),
    ("gptoss chats ", ["1"]),
    ("gptoss plan --kv-type q", ["q4_0", "q8_0"]),
    ("gptoss convert x y --dense q8", ["q8_0"]),
    ("gptoss config context", ["context_length"]),
]

Complete = Callable[[str], list[str]]


@pytest.fixture
def environment(home_server: RunningServer, tmp_path: Path) -> dict[str, str]:
    """A shell's, with gptoss in PATH, a model mine:7b, a hostile file, and nano in memory."""
    command = tmp_path / "bin" / "gptoss"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gptoss_local "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    variables = home_server.environment | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert run_cli(variables, "cp", "nano", "mine:7b").returncode == 0
    assert run_cli(variables, "load", "nano").returncode == 0
    (home_server.home / "models" / "m$(touch evil)`touch evil`;touch evil.gguf").write_bytes(b"")
    far = ("far:20b", "--kind", "llama-server", "--url", "http://127.0.0.1:9")  # nobody is asked
    assert run_cli(variables, "upstream", "add", *far).returncode == 0
    presets = tmp_path / "config" / "gptoss" / "presets.toml"
    presets.write_text('[reviewer]\nsystem = "Be\\nbrief."\n["$(touch evil)"]\nsystem = "No."\n')
    chat = run_cli(variables, "run", "--save", "nano", "What is the capital of France?")
    assert chat.returncode == 0, chat.stderr
    root = str(Path(__file__).parents[2])
    path = f"{command.parent}{os.pathsep}{variables['PATH']}"
    return variables | {"PATH": path, "PYTHONPATH": root, "HOME": str(tmp_path), "TERM": "xterm"}


def in_bash(environment: dict[str, str], folder: Path) -> Complete:
    """The line as readline would complete it, with the part before a colon."""

    def complete(line: str) -> list[str]:
        script = (
            'source <(gptoss completion bash); COMP_LINE=$1 COMP_POINT=${#1}; _gptoss gptoss "" ""'
            '; [[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"'
        )
        found = run_shell(["bash", "-c", script, "bash", line], environment, folder)
        word = line.rpartition(" ")[2]
        kept = word[: word.rfind(":") + 1]
        return sorted(kept + each for each in found)

    return complete


def in_fish(environment: dict[str, str], folder: Path) -> Complete:
    def complete(line: str) -> list[str]:
        script = "gptoss completion fish | source; complete -C $argv[1]"
        found = run_shell(["fish", "-c", script, line], environment, folder)
        return sorted(each.partition("\t")[0] for each in found)

    return complete


# Types the line, Tab, and a command after it into a zsh, whose `compadd` tells what it would offer.
IN_ZSH = r"""
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed $'source <(gptoss completion zsh); bindkey "^I" complete-word; unsetopt auto_list
compadd() { local -a hits; builtin compadd -A hits "$@"; print -rl -- $hits >>$OFFERED
            builtin compadd "$@"; }
PS1=REA""DY'  # printed when it reads keys
zpty -r typed shown '*READY*'
zpty -w -n typed "$1"$'\t\x15print D""ONE\n'
zpty -r typed shown '*DONE*'
cat $OFFERED
"""


def in_zsh(environment: dict[str, str], folder: Path) -> Complete:
    def complete(line: str) -> list[str]:
        with tempfile.NamedTemporaryFile() as offered:
            variables = environment | {"OFFERED": offered.name}
            found = run_shell(["zsh", "-f", "-c", IN_ZSH, "zsh", line], variables, folder)
        return sorted(filter(None, found))

    return complete


def run_shell(command: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "shell",
    [in_bash, *(pytest.param(shell, marks=pytest.mark.nightly) for shell in (in_fish, in_zsh))],
    ids=["bash", "fish", "zsh"],
)
def test_candidates(
    shell: Callable[[dict[str, str], Path], Complete], environment: dict[str, str], tmp_path: Path
) -> None:
    name = shell.__name__.removeprefix("in_")
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    folder = tmp_path / "empty"
    folder.mkdir()
    complete = shell(environment, folder)
    assert {line: complete(line) for line, _ in CASES} == dict(CASES)
    assert set(complete("gptoss ")) >= {"run", "pull", "stop", "completion"}
    assert list(folder.iterdir()) == []  # no name was run


def offered(environment: dict[str, str], *words: str) -> list[str]:
    done = run_cli(environment, "__complete", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_those_of_the_help(command: str, fresh: dict[str, str]) -> None:
    shown = run_cli(fresh, command, "--help").stdout
    options = shown.partition("\nOptions:\n")[2]  # the text above may begin a line with one
    listed = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", options, re.MULTILINE))
    assert "--help" in listed
    flags = [line.partition("\t")[0] for line in offered(fresh, command, "-")]
    assert listed <= set(flags)
    assert all(flag in shown for flag in flags)


def test_first_words(fresh: dict[str, str]) -> None:
    assert offered(fresh, "") == [f"{name}\t{about}" for name, about in COMMANDS.items()]
    assert offered(fresh, "--v") == ["--version\tShow the version."]
    assert offered(fresh, '""') == offered(fresh, "")  # as Windows PowerShell passes it
