"""The three streams of a process as they may be found: closed, full, or of a narrow encoding."""

import errno
import io
import os
import sys

from gptoss_local.errors import GptOssError, UsageError
from gptoss_local.printable import clean_streams


def ready_streams() -> None:
    """Make sure that there are three streams, which print any text as far as they can.

    Python sets a closed stream (`<&-`, a service) to None, and the next file that is opened would
    get its number. What is printed on a closed stdout fails, as on a full disk. Characters that an
    encoding lacks become `?`. In pipes and files of Windows, Python has a code page and CRLF; what
    is read and written there is UTF-8 with the line ends of Linux, as programs expect. Control
    sequences are shown instead of obeyed.
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
    """Return all of stdin as text."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # in some locales Python lets any byte pass
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError("stdin is not text", hint="gpt-oss reads text only, no images.") from error


def is_reader_gone(error: BaseException | None) -> bool:
    """Return whether a write failed because a pipe is closed; on Windows, errors of files differ
    from it in that they have a name.
    """
    is_closed = isinstance(error, OSError) and error.errno == errno.EINVAL and not error.filename
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and is_closed)


def discard_stdout() -> None:
    """Discard unwritten output: the last flush would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def system_error(error: OSError) -> GptOssError:
    """Translate an error of the operating system: a full disk, a folder of another user."""
    if error.errno == errno.EBADF:
        return GptOssError("stdout is closed")
    what = f"{error.filename}: " if error.filename else ""
    return GptOssError(f"{what}{error.strerror or error}", hint="GPTOSS_DEBUG=1 shows where.")
