"""Print, log, run a program and fail, with the standard library alone."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Command = Sequence[str | Path]
_SHOWN = 15  # lines of a failed program
_SILENCE_S = 20.0
_TEXT: Any = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace"}


class SetupError(Exception):
    """A reason to stop the installer, with a hint and the last lines of a failed program."""

    def __init__(self, message: str, hint: str = "", tail: str = "") -> None:
        super().__init__(message)
        self.hint, self.tail = hint, tail

    @property
    def report(self) -> str:
        return f"{self.tail}\n{self}\n{self.hint}"


class Log:
    """Prints messages and keeps them, with all that programs print, in a file made on first use."""

    def __init__(self, path: Path) -> None:
        self.path, self._said_at = path, 0.0

    def say(self, text: str) -> None:
        self._said_at = time.monotonic()
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
        self.note(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")

    def note(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the file, so that no other installer runs alongside; a killed one releases it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            if not _lock(file.fileno()):
                hint = f"Wait until it has ended. Its log: {self.path}"
                raise SetupError("Another gptoss installer is running.", hint)
            yield

    def run(
        self,
        command: Command,
        *,
        failed: str,
        hint: str = "",
        doing: str = "",
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """Run a program into the file; raise SetupError, with the end of its output, if it fails.

        `doing` names the work in messages that it still runs; `on_line` sees each line as it comes.
        """
        words = [str(word) for word in command]
        self.note(f"$ {' '.join(words)}\n")
        tail: deque[str] = deque(maxlen=_SHOWN)
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            with (
                self._heartbeat(doing or Path(words[0]).name),
                subprocess.Popen(words, env=os.environ | dict(env or {}), **streams, **_TEXT) as it,
            ):
                for line in it.stdout or ():
                    self.note(line)
                    tail.append(line)
                    if on_line:
                        on_line(line)
        except OSError as error:
            raise SetupError(f"{failed}: {error}", hint) from error
        if it.returncode:
            message = f"{failed} (exit status {it.returncode})."
            raise SetupError(message, f"{hint} Whole log: {self.path}", "".join(tail))

    @contextlib.contextmanager
    def _heartbeat(self, doing: str) -> Iterator[None]:
        """Say from time to time, when nothing else is said, that a program still runs."""
        start, is_over = time.monotonic(), threading.Event()

        def watch() -> None:
            while not is_over.wait(_SILENCE_S):
                now = time.monotonic()
                if now - self._said_at >= _SILENCE_S:
                    self.say(f"  {doing}: {duration(now - start)} so far")

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _lock(fd: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(fd, 2**30, os.SEEK_SET)  # after the text, as locked bytes cannot be written
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def answer_of(
    command: Command, env: Mapping[str, str] | None = None, statuses: tuple[int, ...] = (0,)
) -> str | None:
    """Return a program's output; None if it is missing, takes a minute or fails."""
    try:
        words = [str(word) for word in command]
        variables = os.environ | dict(env or {})
        done = subprocess.run(words, env=variables, capture_output=True, timeout=60, **_TEXT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in statuses else None
