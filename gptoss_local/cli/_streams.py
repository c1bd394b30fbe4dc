"""The three streams of a process as they may be found: closed, full, or of a narrow encoding."""

import io
import os
import sys

from gptoss_local.errors import GptOssError, UsageError


def ready_streams() -> None:
    """Make sure that there are three streams, which print what they can of any text.

    A closed stream (`<&-`, a service) is None in Python, and the next file that is opened would get
    its number. What an encoding lacks becomes `?`: cp1252, of pipes on Windows, has no emoji.
    """
    for name, mode, flag in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_WRONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flag), mode))
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def read_stdin() -> str:
    """All of stdin as text.

    Raises:
        UsageError: it is none.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # in some locales Python lets any byte pass
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError("stdin is no text", hint="gpt-oss reads text only, no images.") from error


def discard_stdout() -> None:
    """Let nobody get what is still to be written: the last flush would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def system_error(error: OSError) -> GptOssError:
    """What the operating system refused, in its words: a full disk, a folder that is not ours."""
    what = f"{error.filename}: " if error.filename else ""
    return GptOssError(f"{what}{error.strerror or error}", hint="GPTOSS_DEBUG=1 shows where.")
