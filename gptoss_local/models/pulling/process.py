"""Runs a pull in its own process, which can be killed at any point and continued.

    python -m gptoss_local.models.pulling.process MODEL default|gguf DENSE

Writes JSON lines: `Step` and `Note`, and `Failure` if it fails. Ends when they are no longer read.
"""

import logging
import os
import subprocess
import sys
import threading
import time

import msgspec

from gptoss_local.base.errors import GptOssError, error_by_name
from gptoss_local.base.settings import (
    HUB_TOKENS,
    Settings,
    environment_without_secrets,
    load_settings,
)

STEP = "pull"
_REPORT_EVERY_S = 0.1


class Step(msgspec.Struct, frozen=True, tag="step"):
    done: int
    total: int


class Note(msgspec.Struct, frozen=True, tag="note"):
    """A remark on the result, such as how much was rounded, or a wait for the hub."""

    text: str


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    error: str
    message: str
    hint: str


def command(
    name: str, settings: Settings, *, gguf: bool, dense: str = "q8_0"
) -> tuple[list[str], dict[str, str]]:
    what = "gguf" if gguf else "default"
    environment = environment_without_secrets(*HUB_TOKENS)
    if settings.home:
        environment["GPTOSS_HOME"] = str(settings.home)
    module = "gptoss_local.models.pulling.process"
    return [sys.executable, "-P", "-m", module, name, what, dense], environment


def start(
    name: str, settings: Settings, *, gguf: bool, dense: str = "q8_0"
) -> subprocess.Popen[bytes]:
    """Begin a pull; Ctrl-C at the terminal does not reach it."""
    line, environment = command(name, settings, gguf=gguf, dense=dense)
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        flags = 0
    return subprocess.Popen(
        line,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        creationflags=flags,
    )


def read_line(text: bytes) -> Step | Note:
    line = msgspec.json.decode(text, type=Step | Note | Failure)
    if isinstance(line, Failure):
        raise error_by_name(line.error, line.message, hint=line.hint)
    return line


def main() -> None:
    # Not at the top: the server reads our lines, and needs neither converter nor hub for that.
    from gptoss_local.base.printable import clean_streams
    from gptoss_local.models.pulling.pull import pull_model, pulled_model

    clean_streams()
    name, what, dense = sys.argv[1:]
    lock = threading.Lock()
    reported_s = 0.0

    def report(_what: str, done: int, total: int) -> None:
        nonlocal reported_s
        with lock:
            now_s = time.monotonic()
            if done == total or now_s - reported_s >= _REPORT_EVERY_S:
                reported_s = now_s
                _say(Step(done, total))

    notes = logging.Handler()
    notes.emit = lambda record: _say(Note(record.getMessage()))  # type: ignore[method-assign]
    logging.getLogger("gptoss").addHandler(notes)
    try:
        settings, gguf = load_settings(), what == "gguf"
        pull_model(
            pulled_model(name), settings, gguf=gguf, dense=dense, progress=report,
            on_note=lambda text: _say(Note(text)),
        )  # fmt: skip
    except GptOssError as error:
        _say(Failure(type(error).__name__, error.message, error.hint))
        sys.exit(error.exit_code)


def _say(line: Step | Note | Failure) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:  # its reader is gone, as after SIGTERM; what has arrived is kept
        os._exit(1)


if __name__ == "__main__":
    main()
