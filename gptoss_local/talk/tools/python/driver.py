"""Runs code in a process of its own: a script.

Code comes as lines of JSON strings, and a `Result` goes as a line of a JSON array. The argument is
a `Config` as JSON. It ends with its stdin, or after a `stopped`.
"""

import ast
import contextlib
import json
import os
import queue
import re
import signal
import sys
import threading
from typing import BinaryIO, NamedTuple

MOST_PRINTED = 50_000_000  # characters after which code that prints is stopped
NO_OUTPUT = "(no output; print what you want to see)"
_START = "pass; _ = ("  # no code of the user's begins so
_END = '\n)\nif _ is not None: print(f"{_!r}")\nNone'
_SHOWN = re.compile(rf"^( +){re.escape(_START)}(.*\n +) {{{len(_START)}}}(?=~)", re.MULTILINE)
_INPUT = re.compile(r'"<python-input-\d+>"')
_MOST_TRACED = 4_000  # characters of a traceback
_MODULES = (
    "asyncio, base64, binascii, bisect, collections, copy, csv, dataclasses, datetime, decimal, "
    "functools, hashlib, itertools, json, math, os, pathlib, posixpath, random, re, sys, time, "
    "tomllib, typing, unicodedata"
)
_MOST_PARSED = 200_000  # characters; a parsed one takes up to 800 bytes


class Config(NamedTuple):
    """The host's choices; `n_characters` is about the length of a result's text."""

    timeout_s: float
    n_characters: int
    memory_bytes: int
    path: str


class Result(NamedTuple):
    """A call's outcome; `stopped` says why the process ended, and variables with it."""

    text: str
    is_error: bool = False
    stopped: str = ""


class Output:
    """Keeps `n_max` characters of a text of any length, half from its end."""

    def __init__(self, n_max: int) -> None:
        self._n_half = n_max // 2
        self._head = self._tail = ""
        self.n = 0

    def write(self, text: str) -> None:
        self.n += len(text)
        n_head = self._n_half - len(self._head)
        self._head += text[:n_head]
        self._tail = (self._tail + text[n_head:])[-self._n_half :]

    def text(self) -> str:
        n_missing = self.n - len(self._head) - len(self._tail)
        note = f"\n[... {n_missing:,} characters left out ...]\n" if n_missing else ""
        return self._head + note + self._tail


class MontySandbox:
    """Runs code in Monty, an interpreter without files and network, in a process of its own."""

    def __init__(self, config: Config, writing: BinaryIO) -> None:
        _limit_this_process()
        sys.path.append(config.path)
        import pydantic_monty

        self._monty, self._config = pydantic_monty, config
        self._pool = pydantic_monty.Monty(min_processes=0, max_processes=1)
        self._pool.__enter__()
        limits: pydantic_monty.ResourceLimits = {
            "max_memory": config.memory_bytes,
            "max_feed_duration_secs": config.timeout_s + 5,  # should this process be gone
            "max_suspensions": 10**9,  # of a session: each unknown name is one
        }
        self._session = self._pool.checkout(limits=limits, os_policy={"sleep_system_max": 1e6})
        self._session.__enter__()
        self._pid = self._session.worker_pid
        self._session.feed_run("_ = None")
        self._writing, self._output = writing, Output(0)
        self._is_running, self._lock = False, threading.Lock()  # one result a call

    def run(self, code: str) -> None:
        """Run code, and answer; after the time limit without waiting for it."""
        self._output, self._is_running = Output(self._config.n_characters), True
        timeout_s = min(self._config.timeout_s, threading.TIMEOUT_MAX)
        late = Result("", True, f"The code took longer than {self._config.timeout_s:g} s.")
        timer = threading.Timer(timeout_s, self._answer, (late,))
        timer.daemon = True
        timer.start()
        self._answer(self._result_of(code))
        timer.cancel()
        timer.join()

    def _answer(self, result: Result) -> None:
        """Send a call's result, unless one was sent; end if it says so."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            if result.text and self._output.text()[-1:] not in ("", "\n"):
                self._output.write("\n")
            self._output.write(result.text)
            text = self._output.text() or ("" if result.is_error else NO_OUTPUT)
            self._writing.write(json.dumps(result._replace(text=text)).encode() + b"\n")
            self._writing.flush()
            if result.stopped:
                self.end()

    def end(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        os._exit(0)

    def _result_of(self, code: str) -> Result:
        try:
            try:
                self._session.feed_run(_showing_its_value(code), print_callback=self._print)
            except self._monty.MontySyntaxError:
                self._session.feed_run(code, print_callback=self._print)  # told as it was written
        except (self._monty.MontyCrashedError, RuntimeError):  # the latter if it is gone already
            return Result("", is_error=True, stopped="The sandbox crashed.")
        except (self._monty.MontySyntaxError, self._monty.MontyRuntimeError) as error:
            text = _traceback(error.display("traceback")) + self._hint(error.exception(), code)
            is_over = self._session.worker_pid is None
            return Result(text, is_error=True, stopped="The sandbox ended." if is_over else "")
        return Result("")

    def _print(self, _: str, text: str) -> None:
        self._output.write(text)
        if self._output.n > MOST_PRINTED:
            why = f"The code printed more than {MOST_PRINTED // 1_000_000} MB."
            self._answer(Result("", is_error=True, stopped=why))

    def _hint(self, error: BaseException, code: str) -> str:
        if isinstance(error, ImportError):
            return f"\nThe sandbox has these modules only: {_MODULES}."
        if isinstance(error, SyntaxError) and code.lstrip().startswith(("!", "%")):
            return "\nThe sandbox runs no shell commands and no magic commands."
        if isinstance(error, NotImplementedError):
            return "\nThe sandbox runs a subset of Python. Write the code without this."
        if isinstance(error, OSError) or "not supported in this environment" in str(error):
            return "\nThe sandbox has no files, no network, and no environment variables."
        return ""


def _showing_its_value(code: str) -> str:
    """Return code that prints its last expression, and has no value itself.

    A value would be converted in this process, however large it is.
    """
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    last = None
    with contextlib.suppress(SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        if len(code) <= _MOST_PARSED:
            last = ast.parse(code.replace("\0", " ")).body[-1]
    if isinstance(last, ast.Expr):
        *before, line = code.split("\n")[: last.lineno]
        head = "\n".join([*before, line.encode()[: last.col_offset].decode()])
        shown = ast.get_source_segment(code, last) or ""
        if not code[len(head) + len(shown) :].lstrip().startswith(";"):
            return f"{head}{_START}{shown}{_END}"
    return f"{code}\nNone"


def _traceback(text: str) -> str:
    """Return one of Monty's, which names its input, without what was added to the code."""
    shown = Output(_MOST_TRACED)
    text = _SHOWN.sub(r"\1\2", text).replace(_START, "")
    shown.write(_INPUT.sub('"<python>"', text))
    return shown.text()


def _limit_this_process() -> None:
    """Forbid core dumps and writing files, for the sandbox as well, which inherits it."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def main() -> None:
    """Keep the standard streams for ourselves, give code others, and serve."""
    config = Config(**json.loads(sys.argv[1]))
    reading, writing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    sandbox, calls = MontySandbox(config, writing), queue.Queue[str]()

    def read() -> None:
        """Meet the end of the host while code runs, too."""
        try:
            for line in reading:
                calls.put(json.loads(line))
        finally:
            sandbox.end()

    threading.Thread(target=read, daemon=True).start()
    while True:
        sandbox.run(calls.get())


if __name__ == "__main__":
    main()
