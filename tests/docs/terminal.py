"""A user at a terminal, for the commands of a page that need one: asks, sees the answer, leaves.

python -m tests.docs.terminal chat nano
"""

import os
import re
import sys

from tests.cli.conftest import READY, Terminal
from tests.conftest import wait_until

PROMPT = {"chat": READY, "run": ">>> "}
# The chat has saved an answer when its status line has the engine's figures, without a ~.
ANSWERED = {"chat": r"Paris[\s\S]*ctx \d+/", "run": "Paris"}


def main(command: str, arguments: list[str]) -> int:
    has_answer = bool({"--resume", "--chat"} & set(arguments))  # from the last time
    if not has_answer:
        arguments = [*arguments, "--effort", "low"]  # nano does not reason, which would say it, too
    user = dict(os.environ)
    with Terminal(user, *arguments, command=command, size=(30, 100)) as terminal:

        def is_seen(pattern: str) -> bool:
            terminal.drain()
            return bool(re.search(pattern, terminal.screen))

        terminal.read_until(PROMPT[command])
        if not has_answer:
            terminal.type("What is the capital of France?\r")
        wait_until(lambda: is_seen("Paris" if has_answer else ANSWERED[command]))
        terminal.type("/bye\r")

        def has_ended() -> bool:
            terminal.drain()
            return terminal.process.poll() is not None

        wait_until(has_ended)
        return terminal.process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
