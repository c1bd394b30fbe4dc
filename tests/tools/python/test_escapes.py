"""Attempts to leave the sandbox, to fill its memory, or to keep it busy: see corpus/.

Each file begins with how the answer ends. No answer may have a secret in it, and the next call
must work.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.python.source import MOST_CODE_CHARACTERS
from tests.tools.python.conftest import MakePython, children

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.txt"))
STOPPED = "Error: The code "
SLOW = [path for path in CORPUS if path.read_text().startswith(f"# ends: {STOPPED}")]
QUICK = [path for path in CORPUS if path not in SLOW]
MEMORY = [path for path in QUICK if path.name.startswith("memory")]
OTHERS = [path for path in QUICK if path not in MEMORY]

CANARY = "a-secret-of-the-environment"
PASSWD = Path("/etc/passwd")
ESCAPED = Path("/tmp/gptoss-escaped")  # the files that the corpus tries to write
MEMORY_BYTES = 64 << 20


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTOSS_CANARY", CANARY)


def parts(path: Path) -> tuple[str, str]:
    head, code = path.read_text().split("\n", 1)
    return head.removeprefix("# ends: "), code


def last_line(text: str) -> str:
    """Return the last one that is not a hint."""
    hints = ("The sandbox has ", "The sandbox runs ", "Error: The sandbox ended")
    return [line for line in text.rstrip("\n").split("\n") if not line.startswith(hints)][-1]


async def attack(python: Python, path: Path) -> str:
    """Run one attempt; return the fault in its outcome."""
    wanted, code = parts(path)
    text = (await python.run({"code": code})).text
    secrets = [CANARY, *(line for line in _lines_of(PASSWD) if len(line) > 10)]
    if any(secret in text for secret in secrets):
        return f"{path.name}: told a secret"
    if not last_line(text).startswith(wanted):
        return f"{path.name}: {last_line(text)[:200]}"
    after = (await python.run({"code": "1 + 1"})).text
    return "" if after == "2\n" else f"{path.name}: then {after[:200]}"


def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def test_nothing_is_read_or_written(make_python: MakePython) -> None:
    ESCAPED.unlink(missing_ok=True)
    python = make_python()
    wrong = [await attack(python, path) for path in OTHERS]
    assert [each for each in wrong if each] == []
    assert not ESCAPED.exists()
    assert len(OTHERS) > 80


async def test_memory_stays_bounded(make_python: MakePython) -> None:
    python = make_python(python_memory="64MiB")
    watch = Watch()
    async with watch:
        wrong = [await attack(python, path) for path in MEMORY]
    assert [each for each in wrong if each] == []
    assert len(MEMORY) > 20
    if sys.platform == "linux":
        assert 0 < watch.peak["monty"] < MEMORY_BYTES + (64 << 20)
        assert watch.peak["python"] < 4 * MEMORY_BYTES


async def test_nothing_runs_for_ever(make_python: MakePython) -> None:
    """All at the same time, as each takes its second."""
    start_s = time.monotonic()
    pythons = [make_python(python_timeout_s=2.0) for _ in SLOW]
    wrong = await asyncio.gather(*map(attack, pythons, SLOW))
    assert [each for each in wrong if each] == []
    assert len(SLOW) > 8
    assert time.monotonic() - start_s < 60


class Watch:
    """Watches the memory of child processes, in bytes."""

    def __init__(self) -> None:
        self.peak = {"monty": 0, "python": 0}

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            for child in children():
                with contextlib.suppress(psutil.Error):
                    kind = "monty" if "monty" in child.name() else "python"
                    self.peak[kind] = max(self.peak[kind], child.memory_info().rss)
            await asyncio.sleep(0.005)


CODES: dict[str, tuple[Callable[[], str], str]] = {
    "a NUL": (lambda: "x = 1\0\nx", "SyntaxError: "),
    "a NUL in a string": (lambda: "len('a\0b')", "3"),
    "control characters": (lambda: "x = '\x1b\x07\x7f'\nlen(x)", "3"),
    "a byte order mark": (lambda: "\ufeff1 + 1", "2"),
    "line ends of Windows": (lambda: "x = 1\r\nx\r\n", "1"),
    "round brackets": (lambda: "(" * 100_000 + ")" * 100_000, "SyntaxError: "),
    "square brackets": (lambda: "[" * 100_000, "SyntaxError: "),
    "signs": (lambda: "-" * 100_000 + "1", "SyntaxError: "),
    "attributes": (lambda: "x" + ".a" * 100_000, "SyntaxError: "),
    "sums": (lambda: "+".join(["1"] * 100_000), "SyntaxError: "),
    "blocks": (lambda: "".join(f"{' ' * i}if 1:\n" for i in range(900)), "SyntaxError: "),
    "many lines": (lambda: "x = 1\n" * 30_000 + "x", "1"),
    "many statements": (lambda: "1;" * 90_000 + "2", "2"),
    "a long string": (lambda: f"len('{'a' * 190_000}')", "190000"),
}


async def test_odd_code(make_python: MakePython) -> None:
    python = make_python()
    wrong = []
    for name, (code, wanted) in CODES.items():
        text = (await python.run({"code": code()})).text
        if not last_line(text).startswith(wanted):
            wrong.append(f"{name}: {last_line(text)[:200]}")
        if (await python.run({"code": "1 + 1"})).text != "2\n":
            wrong.append(f"{name}: the next call")
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x" * 10_000_000, "the code is longer than 1,000,000 characters"),
        ("print('\ud800')", "half of a surrogate pair"),
        (None, "code must be a string"),
        (["print(1)"], "code must be a string"),
    ],
)
async def test_refused_code(make_python: MakePython, code: object, message: str) -> None:
    assert MOST_CODE_CHARACTERS == 1_000_000
    with pytest.raises(UsageError, match=message):
        await make_python().run({"code": code})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_what_the_processes_can_reach(
    make_python: MakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    await make_python().run({"code": "x = 1"})
    ours = children()
    assert [child.name() for child in ours if "monty" in child.name()]
    assert len(ours) == 2
    for child in ours:
        assert set(child.environ()) <= {"LD_LIBRARY_PATH", "LC_CTYPE"}
        assert child.net_connections() == []
        files = {Path(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")}
        targets = {os.readlink(path) for path in files if path.is_symlink()}
        kinds = {target.split(":")[0] for target in targets}
        assert kinds <= {"pipe", "/dev/null", "anon_inode", "socket"}, targets
        assert child.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
