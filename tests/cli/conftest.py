"""Runs the real `gptoss` command, in this process or in one of its own."""

import gc
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import traceback
import warnings
import webbrowser
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, NoReturn, Self
from unittest.mock import patch

import psutil
import pytest
from prompt_toolkit.application import create_app_session

from gptoss_local.__main__ import main
from gptoss_local.harmony import Vocabulary
from tests.conftest import PATIENCE_S, RunningServer, free_port, give_nano, wait_until

WORD = "Xyzzyplugh"
"""A word that no file has by itself."""

Cli = Callable[..., subprocess.CompletedProcess[str]]


def run_cli(
    environment: dict[str, str], *arguments: str, stdin: str = "", is_process: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    It runs in this process, 1.4 s quicker than in one of its own, which `is_process` asks for where
    a test is about starts, ends, signals, or another program's view.
    """
    if is_process:
        return subprocess.run(
            [sys.executable, "-m", "gptoss_local", *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
        with tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            code = call_main(environment, arguments, given, out, err)
            err.seek(0)
            said = err.read().decode()
        out.seek(0)
        printed = out.read().decode()
    texts = (text.replace("\r\n", "\n") for text in (printed, said))
    return subprocess.CompletedProcess(list(arguments), code, *texts)


def call_main(environment: dict[str, str], arguments: tuple[str, ...], *streams: IO[bytes]) -> int:
    """Call the program's `main` as `python -m` does, with three streams; return its exit code."""
    with _as_process(environment, *streams):
        sys.argv = ["gptoss", *arguments]
        try:
            main()
        except SystemExit as ended:
            if ended.code is not None and not isinstance(ended.code, int):
                print(ended.code, file=sys.stderr)
            return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        return 0


def _run_and_exit(program: str, command: list[str], environment: dict[str, str]) -> NoReturn:
    """Stand in for `os.execve`, but leave this process alive."""
    sys.exit(subprocess.run(command, executable=program, env=environment).returncode)


@contextmanager
def _as_process(environment: dict[str, str], *files: IO[bytes]) -> Iterator[None]:
    """Have the variables, streams, signals and state of a process that begins.

    Programs that are started inherit the streams, so the descriptors are exchanged as well.
    """
    kept = [os.dup(fd) for fd in range(3)]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ExitStack() as changes:
            for fd, (name, errors) in enumerate(_STREAMS):
                os.dup2(files[fd].fileno(), fd)
                stream = open(  # noqa: SIM115 - the program may replace it
                    fd, "w" if fd else "r", encoding="utf-8", errors=errors, closefd=False
                )
                changes.enter_context(patch.object(sys, name, stream))
            changes.enter_context(patch.object(sys, "argv", []))
            changes.enter_context(patch.object(os, "execve", _run_and_exit))
            changes.enter_context(patch.multiple(webbrowser, _tryorder=None, _browsers={}))
            changes.enter_context(patch.dict(os.environ, environment, clear=True))
            changes.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", ResourceWarning)  # the end of a process closes all
            gc.freeze()  # so that only objects of this call are collected
            yield
            sys.stdout.flush()
            sys.stderr.flush()
            gc.collect()
    finally:
        if hub := sys.modules.get("huggingface_hub"):
            hub.close_session()  # it keeps proxies and certificates
        gc.unfreeze()
        for fd, old in enumerate(kept):
            os.dup2(old, fd)
            os.close(old)
        for number, handler in handlers.items():
            signal.signal(number, handler)


_STREAMS = (("stdin", "strict"), ("stdout", "strict"), ("stderr", "replace"))


def rows_left(written: str) -> list[str]:
    """Return the rows that stay on a terminal, where some are drawn again."""
    rows = [""]
    for n, part in enumerate(re.split(r"\x1b\[(\d+)F\x1b\[J", written)):
        if n % 2:
            rows[-1 - int(part) :] = [""]
        else:
            first, *more = part.split("\n")
            rows[-1] += first
            rows += more
    return rows


def in_terminal(
    environment: dict[str, str],
    *arguments: str,
    typed: str = "",
    at: str = "",
    columns: int = 100,
) -> str:
    """Return the output of a command with a terminal as its three streams, in this process.

    Types `typed` as long as it writes nothing more after `at`.
    """
    terminal, end = os.openpty()
    termios.tcsetwinsize(end, (60, columns))
    size = {"COLUMNS": str(columns), "LINES": "60"}
    environment = {"TERM": "xterm-256color"} | size | environment
    written = bytearray()

    def talk() -> None:
        while True:
            if not select.select([terminal], [], [], 0.2)[0]:
                if typed and at.encode() in written:
                    os.write(terminal, typed.encode())
                continue
            try:
                written.extend(os.read(terminal, 65_536))
            except OSError:  # the other end is closed
                return

    talking = Thread(target=talk)
    talking.start()
    try:
        with open(end, "r+b", buffering=0) as screen, create_app_session():
            call_main(environment, arguments, screen, screen, screen)
    finally:
        talking.join()
        os.close(terminal)
    return written.decode()


@pytest.fixture
def cli(server: RunningServer) -> Cli:
    """A command line that reaches the shared server."""
    return lambda *arguments, **kwargs: run_cli(server.environment, *arguments, **kwargs)


@pytest.fixture
def home_cli(home_server: RunningServer) -> Cli:
    """A command line for a server with models to change."""
    return lambda *arguments, **kwargs: run_cli(home_server.environment, *arguments, **kwargs)


@pytest.fixture
def fresh(empty_home: Path) -> Iterator[dict[str, str]]:
    """Environment of a user without a running server; stops any server that a test started."""
    environment = os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": str(free_port())}
    yield environment
    run_cli(environment, "stop")


@pytest.fixture
def place(tmp_path: Path, nano_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that a user's programs write: home, caches and temporary files."""
    give_nano(nano_home, tmp_path / "home" / "cache")
    for name, folder in (("HOME", "user"), ("TMPDIR", "tmp"), ("XDG_CONFIG_HOME", "config")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


@pytest.fixture
def found(place: Path, vocabulary: Vocabulary) -> Callable[[], set[str]]:
    """Names the files that have the word, as text or as the tokens of a prompt."""
    tokens = vocabulary.encode(f" {WORD} is behind door")
    signs = (WORD.encode(), WORD.lower().encode(), WORD.encode("utf-16-le"))
    signs = (*signs, array("i", tokens).tobytes())

    def find() -> set[str]:
        contents = dict[Path, bytes]()
        for folder, _, names in os.walk(place):  # files and folders may go meanwhile
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):
                    if path.is_file() and path.suffix != ".gguf":  # nano is large
                        contents[path] = path.read_bytes()
        having = [path for path, data in contents.items() if any(sign in data for sign in signs)]
        return {"prefix" if path.suffix == ".prefix" else path.name for path in having}

    return find


class PseudoTerminal:
    """A process with one pseudo terminal as its three streams."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        folder: Path,
        size: tuple[int, int] = (0, 0),
    ) -> None:
        self._fd, child_fd = pty.openpty()
        termios.tcsetwinsize(child_fd, size)
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=child_fd,
            stdout=child_fd,
            stderr=child_fd,
            start_new_session=True,
        )
        os.close(child_fd)
        self.screen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_until(self, text: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.screen:
            left_s = max(0.0, deadline_s - time.monotonic())
            assert select.select([self._fd], [], [], left_s)[0], self.screen
            try:
                self.screen += os.read(self._fd, 4096).decode(errors="replace")
            except OSError as error:  # the process is gone
                raise AssertionError(f"ended before {text!r}:\n{self.screen}") from error

    def drain(self) -> None:
        """Read the output so far."""
        while select.select([self._fd], [], [], 0.05)[0]:
            try:
                self.screen += os.read(self._fd, 1 << 16).decode(errors="replace")
            except OSError:
                return  # it ended

    def await_input(self) -> None:
        """Wait until the process itself waits.

        A Ctrl-C between the prompt of CPython's `input` and its `select` is seen at the next key.
        """
        process = psutil.Process(self.process.pid)
        wait_until(lambda: process.status() == psutil.STATUS_SLEEPING)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def hang_up(self) -> None:
        """Go away without a word to the process."""
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self._fd)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


class Terminal(PseudoTerminal):
    """A command of gptoss in a terminal: `run`, unless named."""

    def __init__(
        self,
        user: RunningServer | dict[str, str],
        *arguments: str,
        command: str = "run",
        size: tuple[int, int] = (0, 0),
        **variables: str,
    ) -> None:
        program = [sys.executable, "-m", "gptoss_local", command, *arguments]
        environment = user if isinstance(user, dict) else user.environment
        super().__init__(program, environment | variables, Path(), size)


READY = "essage, /command"  # the cursor stands on the first letter, which is written apart


def chat_in_terminal(user: RunningServer | dict[str, str], *arguments: str) -> Terminal:
    """Start the chat in a terminal of 100 x 30."""
    return Terminal(user, *arguments, command="chat", size=(30, 100), TERM="xterm-256color")
