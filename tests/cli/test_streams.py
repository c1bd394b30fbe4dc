"""Streams that are closed, full, not read to their end, or no text: a sentence at most."""

import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import RunningServer

FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris.\n"


def in_shell(server: RunningServer, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which `gptoss` is our command."""
    prelude = f'gptoss() {{ "{sys.executable}" -m gptoss_local "$@"; }}\n'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", prelude + script],
        env=server.environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )


@pytest.mark.parametrize(
    ("command", "code", "stdout", "last"),
    [
        ("run nano '{FRANCE}' <&-", 0, PARIS, ""),
        ("run nano '{FRANCE}' </dev/null >&-", 1, "", "gptoss: stdout is closed"),
        ("ls >&-", 1, "", "gptoss: stdout is closed"),
        ("run nano '{FRANCE}' </dev/null 2>&-", 0, PARIS, ""),
    ],
)
def test_closed_streams(
    server: RunningServer, command: str, code: int, stdout: str, last: str
) -> None:
    done = in_shell(server, f"gptoss {command.format(FRANCE=FRANCE)}")
    assert (done.returncode, done.stdout) == (code, stdout), done.stderr
    assert not last or done.stderr.splitlines()[-1] == last


@pytest.mark.parametrize("command", ["ls", "config", f"run nano '{FRANCE}' --json </dev/null"])
def test_a_reader_that_has_enough(server: RunningServer, command: str) -> None:
    """`set -o pipefail` is common in scripts: nothing failed here."""
    done = in_shell(server, f"gptoss {command} | true")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "command", ["ls", "ls --json", f"run nano '{FRANCE}' --hide-reasoning </dev/null"]
)
def test_a_full_disk_behind_stdout(server: RunningServer, command: str) -> None:
    done = in_shell(server, f"gptoss {command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("gptoss: No space left on device\n"), done.stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_that_are_no_text(server: RunningServer, locale: str) -> None:
    done = in_shell(server, f"printf 'caf\\xe9' | LC_ALL={locale} gptoss run nano What")
    assert done.returncode == 2
    assert done.stderr.startswith("gptoss: stdin is not text\n"), done.stderr
    done = in_shell(server, f"LC_ALL={locale} gptoss run nano $'caf\\xe9' </dev/null")
    assert done.returncode == 2
    assert done.stderr.startswith("gptoss: an argument"), done.stderr
    script = f"printf 'caf\\xe9\\n{FRANCE}\\n' | LC_ALL={locale} gptoss run -i nano"
    assert PARIS in in_shell(server, script).stdout


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.4])
def test_ctrl_c_while_it_starts(server: RunningServer, after_s: float) -> None:
    command = [sys.executable, "-m", "gptoss_local", "run", "nano", "Count from 1 to 900."]
    process = subprocess.Popen(
        command, env=server.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1].decode()
    # Python itself has no handler in its first moments.
    assert process.returncode == 130 or "gptoss_local" not in said, said
