"""Runs code in a process of its own, and answers in frames: a script, not imported by gptoss.

A frame is a length (4 bytes, big-endian) and JSON: code as a string, a `Result` as an array. The
argument is a `Config` as JSON. It ends with its stdin, or after a `stopped`.
"""

import contextlib
import json
import os
import queue
import re
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

MOST_PRINTED = 50_000_000
"""Characters after which code that prints is stopped."""
_BLOCK = re.compile(
    r"\s|(?:async|case|class|def|elif|else|except|finally|for|if|match|try|while|with)\b"
)
"""Begins a line that does not end in an expression of the module."""
NO_OUTPUT = "(no output; print what you want to see)"


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
        self._lock = threading.Lock()
        self.n = 0

    def write(self, text: str) -> None:
        with self._lock:
            self.n += len(text)
            n_head = self._n_half - len(self._head)
            self._head += text[:n_head]
            self._tail = (self._tail + text[n_head:])[-self._n_half :]

    def text(self) -> str:
        with self._lock:
            n_missing = self.n - len(self._head) - len(self._tail)
            note = f"\n[... {n_missing:,} characters left out ...]\n" if n_missing else ""
            return self._head + note + self._tail


class MontySandbox:
    """Runs code in Monty, an interpreter without files and network; `check` follows output."""

    _START = "pass; _ = ("  # no part of an expression, so it is an error in the middle of one
    _END = '\n)\nif _ is not None: print(f"{_!r}")\nNone'
    _N_TRIED = 6

    def __init__(self, config: Config, check: Callable[[Output], None]) -> None:
        _limit_this_process()
        sys.path.append(config.path)
        import pydantic_monty

        self._monty, self._check = pydantic_monty, check
        self._pool = pydantic_monty.Monty(min_processes=0, max_processes=2)
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
        self._modules = ""

    def kill(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def run(self, code: str, output: Output) -> Result:
        def on_print(_: str, text: str) -> None:
            output.write(text)
            self._check(output)

        if self._is_valid(code):
            # The value is None then, as others would be converted here, however large they are.
            code = next(filter(self._is_valid, self._that_show_a_value(code)), f"{code}\nNone")
        try:
            self._session.feed_run(code, print_callback=on_print)
        except (self._monty.MontyCrashedError, RuntimeError):  # the latter if it is gone already
            return Result("", is_error=True, stopped="The sandbox crashed.")
        except (self._monty.MontySyntaxError, self._monty.MontyRuntimeError) as error:
            text = self._traceback(error) + self._hint(error.exception(), code)
            is_over = self._session.worker_pid is None
            return Result(text, is_error=True, stopped="The sandbox ended." if is_over else "")
        return Result("")

    def _that_show_a_value(self, code: str) -> Iterator[str]:
        """Yield the code with a last expression printed, per place where one may begin.

        A wrong place is a syntax error, so only the sandbox parses the code.
        """
        lines = [f"{line}\n" for line in code.split("\n")]  # `splitlines` knows ends of other kinds
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        n_last = len(code.rstrip())
        last_line = max((start for start in starts if start < n_last), default=0)
        places = []
        if not _BLOCK.match(code, last_line):
            places = [n for n in range(last_line + 1, n_last) if code[n - 1] == ";"][::-1]
        for start, line in zip(starts[-2::-1], lines[::-1], strict=True):
            if line[0] not in " \t\f\r\n#\\)]}" and not code.endswith("\\\n", 0, start):
                places.append(start)
        for place in places[: self._N_TRIED]:
            head, tail = code[:place], code[place:].lstrip(" \t")
            if not tail.startswith("#"):
                yield f"{head}{self._START}{tail}{self._END}"

    def _is_valid(self, code: str) -> bool:
        try:
            self._session.feed_run(f"raise StopIteration\n{code}")
        except self._monty.MontyCrashedError:
            return True  # which the caller meets again
        except self._monty.MontyError as error:
            return isinstance(error.exception(), StopIteration)
        return False

    def _traceback(self, error: Any) -> str:
        frames = error.traceback()
        lines = []
        for n, frame in enumerate(frames):
            if len(frames) > 12 and 5 <= n < len(frames) - 5:
                lines += [f"  [... {len(frames) - 10} calls left out ...]"] if n == 5 else []
                continue
            place = f", in {frame.function_name}" if frame.function_name else ""
            lines.append(f'  File "<python>", line {frame.line}{place}')
            source = (frame.source_line or "").replace(self._START, "").strip()
            lines += [f"    {source[:300]}"] if source else []
        start = ["Traceback (most recent call last):"] if frames else []
        return "\n".join([*start, *lines, error.display("type-msg")])

    def _hint(self, error: BaseException, code: str) -> str:
        if isinstance(error, ImportError):
            self._modules = self._modules or self._find_modules()
            return f"\nThe sandbox has these modules only: {self._modules}."
        if isinstance(error, SyntaxError) and code.lstrip().startswith(("!", "%")):
            return "\nThe sandbox runs no shell commands and no magic commands."
        if isinstance(error, NotImplementedError):
            return "\nThe sandbox runs a subset of Python. Write the code without this."
        if isinstance(error, OSError) or "not supported in this environment" in str(error):
            return "\nThe sandbox has no files, no network, and no environment variables."
        return ""

    def _find_modules(self) -> str:
        found: list[str] = []
        code = "".join(
            f"try:\n  import {name}\n  print('{name}')\nexcept ImportError: pass\n"
            for name in sorted(sys.stdlib_module_names)
            if not name.startswith("_")
        )
        with self._pool.checkout() as session, contextlib.suppress(self._monty.MontyError):
            session.feed_run(code, print_callback=lambda _, text: found.extend(text.split()))
        return ", ".join(found)


def _limit_this_process() -> None:
    """Forbid core dumps and writing files, for the sandbox as well, which inherits it."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class CodeServer:
    def __init__(self, config: Config, reading: BinaryIO, writing: BinaryIO) -> None:
        self._config, self._reading, self._writing = config, reading, writing
        self._calls: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()  # one result a call
        self._output = Output(0)
        self._is_running = False
        self._engine: MontySandbox | None = None

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        engine = self._engine = MontySandbox(self._config, self._check)
        while True:
            self._serve(engine, self._calls.get())

    def _serve(self, engine: MontySandbox, code: str) -> None:
        self._output = Output(self._config.n_characters)
        self._is_running = True
        late = f"The code took longer than {self._config.timeout_s:g} s."
        timeout_s = min(self._config.timeout_s, threading.TIMEOUT_MAX)
        timer = threading.Timer(timeout_s, self._stop, (late,))
        timer.daemon = True
        timer.start()
        result = engine.run(code, self._output)
        timer.cancel()
        self._answer(result)

    def _answer(self, result: Result) -> None:
        """Send a call's result, unless one was sent; end if it says so."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            printed = self._output.text()
            if result.text:
                between = "\n" if printed and not printed.endswith("\n") else ""
                self._output.write(between + result.text)
            text = self._output.text() or ("" if result.is_error else NO_OUTPUT)
            data = json.dumps(result._replace(text=text)).encode()
            self._writing.write(struct.pack(">I", len(data)) + data)
            self._writing.flush()
            if result.stopped:
                self._end()

    def _stop(self, why: str) -> None:
        self._answer(Result("", is_error=True, stopped=why))

    def _check(self, output: Output) -> None:
        if output.n > MOST_PRINTED:
            self._stop(f"The code printed more than {MOST_PRINTED // 1_000_000} MB.")

    def _read(self) -> None:
        """Read frames in a thread, so that the end of the host is met while code runs."""
        while True:
            length = self._reading.read(4)
            data = self._reading.read(*struct.unpack(">I", length)) if len(length) == 4 else b""
            if not data:
                self._end()
            self._calls.put(json.loads(data))

    def _end(self) -> None:
        if self._engine is not None:
            self._engine.kill()
        os._exit(0)


def main() -> None:
    """Keep the standard streams for frames, give code others, and serve."""
    config = Config(**json.loads(sys.argv[1]))
    reading, writing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    CodeServer(config, reading, writing).run()


if __name__ == "__main__":
    main()
