"""A user at a terminal, for the commands of a page that need one: asks, sees the answer, leaves.

python -m tests.docs.terminal chat nano
"""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

QUESTION = "What is the capital of France?"
READY = {"chat": "essage, /command", "run": ">>> "}
# The chat has saved an answer when its status line has the engine's figures, without a ~.
ANSWERED = {"chat": r"Paris[\s\S]*ctx \d+/", "run": "Paris"}
LIMIT_S = 200


def main(arguments: list[str]) -> int:
    has_answer = bool({"--resume", "--chat"} & set(arguments))  # from the last time
    if not has_answer:
        arguments = [*arguments, "--effort", "low"]  # nano does not reason, which would say it, too
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "gptoss_local", *arguments])
    screen = _read(fd, READY[arguments[0]])
    if not has_answer:
        os.write(fd, f"{QUESTION}\r".encode())
        _read(fd, ANSWERED[arguments[0]])
    elif "Paris" not in screen:
        _read(fd, "Paris")
    os.write(fd, b"/bye\r")
    _read(fd, None)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _read(fd: int, pattern: str | None) -> str:
    """Read until a pattern is there, or without one to the end."""
    screen, deadline_s = "", time.monotonic() + LIMIT_S
    while pattern is None or not re.search(pattern, screen):
        if not select.select([fd], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            sys.exit(f"no {pattern!r} within {LIMIT_S} s in:\n{screen}")
        try:
            screen += os.read(fd, 1 << 16).decode(errors="replace")
        except OSError:  # the other end is closed
            if pattern is None:
                return screen
            sys.exit(f"it ended without {pattern!r}:\n{screen}")
    return screen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
