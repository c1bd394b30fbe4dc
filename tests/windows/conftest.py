"""gptoss on Windows' own Python, under Wine: `python3 tests/windows/on_wine.py` makes it.

Where that has not been done, these tests are skipped.
"""

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.conftest import free_port, wait_until
from tests.windows import on_wine

PYTHON = on_wine.PYTHON
IS_THERE = PYTHON.is_file() and shutil.which("wine") is not None
COMMAND_S = 500.0
ON_WINDOWS = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IS_THERE, reason="first: python3 tests/windows/on_wine.py"),
]


def windows_path(path: Path) -> str:
    """Return the path as a program under Wine writes it: `Z:` is the root here."""
    return "Z:" + str(path).replace("/", "\\")


@dataclass
class Pc:
    """A Windows PC: a home of its own, a port, and its clock."""

    home: Path
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    started: "list[Running]" = field(default_factory=list)
    took_s: dict[str, float] = field(default_factory=dict)
    """By command, for the table in docs/windows.md."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "GPTOSS_HOME": windows_path(self.home),
            "GPTOSS_PORT": str(self.port),
            "GPTOSS_CONTEXT_LENGTH": "4096",
            "NO_PROXY": "*",
        }
        return on_wine.environment() | own | self.variables

    def start(self, *arguments: str) -> "Running":
        """Start Windows' Python with these arguments."""
        return Running(["wine", str(PYTHON), *arguments], self)

    def gptoss(self, *arguments: str, code: int = 0) -> str:
        """Run a command, and return its output; fail unless it ends with this exit code."""
        start_s = time.monotonic()
        running = self.start("-m", "gptoss_local", *arguments)
        ended = running.wait()
        self.took_s[" ".join(arguments[:2])] = time.monotonic() - start_s
        assert ended == code, f"{ended}\n{running.printed}"
        assert "Traceback" not in running.printed, running.printed
        return running.printed

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        running = self.start("-m", "gptoss_local", "serve")
        try:
            wait_until(self._answers)
            yield
        finally:
            self.gptoss("stop")
            running.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/api/version", trust_env=False).is_success
        return False


class Running:
    """A program under Wine. Its output is read from pipes: Python there refuses a file of Linux."""

    def __init__(self, command: list[str], pc: Pc) -> None:
        self.process = subprocess.Popen(
            command,
            env=pc.environment,
            cwd=pc.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        pc.started.append(self)
        self._lines: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def printed(self) -> str:
        return b"".join(self._lines).decode("utf-8", "replace")

    def wait(self, limit_s: float = COMMAND_S) -> int:
        """Wait for its end. A server that it started holds the pipe, which has no end then."""
        code = self.process.wait(timeout=limit_s)
        self._reader.join(timeout=0.5)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.append(line)


@pytest.fixture(scope="session")
def installed() -> None:
    """This clone, as it is now, on Windows' Python."""
    on_wine.set_up()


@pytest.fixture(scope="module")
def pc(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pc]:
    """A PC for all tests of a module; its server is stopped at the end."""
    made = Pc(tmp_path_factory.mktemp("windows"))
    yield made
    for command, seconds in made.took_s.items():
        print(f"gptoss {command}: {seconds:.1f} s")
    made.gptoss("stop")
    subprocess.run([on_wine.WINESERVER, "-k"], env=made.environment, check=False)
    for running in made.started:
        running.close()
