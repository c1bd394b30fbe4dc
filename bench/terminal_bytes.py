"""Bytes that `gptoss chat` writes to a terminal of 120x40 while an answer streams.

    python bench/terminal_bytes.py [--tokens-per-s 300] [--turns 150]

The answer is prose and code of pieces of four characters from a script, below the given number of
turns. Prints kB/s over five seconds: 31, of 347 that Textual would write.
"""

import argparse
import asyncio
import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gptoss_local.base.settings import Settings
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import ToolSources
from tests.tui.scripted import ScriptedServer
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer

SECONDS = 5
PROSE = "A sentence of some words, which wraps at the end of a line. " * 6 + "\n\n"
CODE = "```python\n" + "    value = compute(index, offset)  # row\n" * 12 + "```\n\n"


def chat(per_s: int, n_turns: int, folder: Path) -> None:
    """Run the chat on the terminal of this process."""
    history = History(folder / "chats.sqlite3")
    conversation = Conversation(history, "nano", "medium")
    chat_id, parent = history.new_chat("nano", "medium", "bench"), None
    for n in range(n_turns // 2):
        parent = history.add(chat_id, parent, "user", f"Question {n}").id
        parent = history.add(chat_id, parent, "assistant", PROSE + CODE, model="nano").id
    conversation.open(chat_id)
    text = (PROSE + CODE) * 40
    pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
    server = ChatServer(ScriptedServer("", pieces, per_s))
    app = ChatApp(server, history, conversation, ToolSources(Settings(), folder).toolbox)
    asyncio.run(app.run_async())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens-per-s", type=int, default=300)
    parser.add_argument("--turns", type=int, default=150)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", LC_ALL="C.UTF-8")
            chat(args.tokens_per_s, args.turns, Path(folder))
            os._exit(0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        n_bytes = 0

        def read() -> None:
            nonlocal n_bytes
            while True:
                try:
                    n_bytes += len(os.read(terminal, 1 << 16))
                except OSError:
                    return

        threading.Thread(target=read, daemon=True).start()
        time.sleep(6)
        os.write(terminal, b"go\r")
        time.sleep(3)
        before = n_bytes
        time.sleep(SECONDS)
        print(f"{(n_bytes - before) / SECONDS / 1e3:.0f} kB/s")
        os.kill(pid, 9)


if __name__ == "__main__":
    main()
