"""The three streams of a process as they may be found: closed, full, or of a narrow encoding."""

import errno
import io
import os
import sys

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.printable import clean_streams


def ready_streams() -> None:
    """Make sure that there are three streams, which print any text as far as they can.

    Python sets a closed one to None, and its number would go to the next file. Windows' pipes and
    files get UTF-8 with Linux' line ends. Control sequences are shown, not obeyed.
    """
    for name, mode, flag in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flag), mode))
        elif isinstance(stream, io.TextIOWrapper):
            if sys.platform == "win32" and not stream.isatty():
                stream.reconfigure(encoding="utf-8", newline="\n" if mode == "w" else None)
            if mode == "w":
                stream.reconfigure(errors="replace")
    clean_streams()


def read_stdin() -> str:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # in some locales Python lets any byte pass
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError("stdin is not text", hint="gpt-oss reads text only, no images.") from error


def is_reader_gone(error: BaseException | None) -> bool:
    """Return whether a write failed because a pipe is closed; only files' errors have a name."""
    is_closed = isinstance(error, OSError) and error.errno == errno.EINVAL and not error.filename
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and is_closed)


def discard_stdout() -> None:
    """Discard unwritten output: the last flush would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def system_error(error: OSError) -> GptOssError:
    if error.errno == errno.EBADF:
        return GptOssError("stdout is closed")
    what = f"{error.filename}: " if error.filename else ""
    return GptOssError(f"{what}{error.strerror or error}", hint="GPTOSS_DEBUG=1 shows where.")
