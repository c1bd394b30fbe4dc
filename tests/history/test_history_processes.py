"""Several processes on one file, and processes that die."""

import subprocess
import sys
from pathlib import Path

from gptoss_local.talk.history import History
from tests.conftest import wait_until

STREAM = """
import sys
from pathlib import Path
from gptoss_local.talk.history import History

history = History(Path(sys.argv[1]))
chat_id = history.new_chat("nano", "low")
question = history.add(chat_id, None, "user", "Count.")
answer = history.add(chat_id, question.id, "assistant", "", state="streaming")
print(answer.id, flush=True)
for n in range(1, 10**9):
    history.update(answer.id, content=" ".join(map(str, range(n % 500))), reasoning=str(n))
    print(n, flush=True)
"""

ADD_MANY = """
import sys
from pathlib import Path
from gptoss_local.talk.history import History

history = History(Path(sys.argv[1]))
chat_id = history.new_chat("nano", "low", sys.argv[2])
parent_id = None
for n in range(100):
    parent_id = history.add(chat_id, parent_id, "user", f"process{sys.argv[2]} turn{n}").id
history.close()
"""


def python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_kill_loses_nothing_that_was_handed_over(history_path: Path) -> None:
    n_updates = 37
    with python(STREAM, history_path) as process:
        assert process.stdout is not None
        turn_id = int(process.stdout.readline())
        for _ in range(n_updates):
            process.stdout.readline()
        process.kill()  # SIGKILL
        n_handed_over = max([n_updates, *map(int, process.stdout.read().split())])
    history = History(history_path)
    turn = history.turn(turn_id)
    assert turn.state == "stopped"
    assert n_handed_over <= int(turn.reasoning) <= n_handed_over + 1
    assert turn.content == " ".join(map(str, range(int(turn.reasoning) % 500)))
    question = history.branch(turn_id)[0]
    assert [hit.turn_id for hit in history.search("count")] == [question.id]
    if int(turn.reasoning) % 500 > 1:
        assert [hit.turn_id for hit in history.search("0 1")] == [turn_id]  # indexed, too
    history.close()


def test_a_living_process_goes_on_streaming(history_path: Path) -> None:
    with python(STREAM, history_path) as process:
        assert process.stdout is not None
        turn_id = int(process.stdout.readline())
        process.stdout.readline()
        history = History(history_path)
        before = int(history.turn(turn_id).reasoning)
        wait_until(
            lambda: process.stdout.readline() and int(history.turn(turn_id).reasoning) > before + 5
        )
        assert history.turn(turn_id).state == "streaming"
        process.kill()
        process.stdout.read()
    assert history.turn(turn_id).state == "streaming"  # as it was when this one opened
    History(history_path).close()
    assert history.turn(turn_id).state == "stopped"
    history.close()


def test_many_make_the_file_at_once_and_write(history_path: Path) -> None:
    processes = [python(ADD_MANY, history_path, n) for n in range(4)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    history = History(history_path)
    assert sorted(chat.title for chat in history.chats()) == list("0123")
    for chat in history.chats():
        words = [turn.content for turn in history.branch(chat.leaf_id)]
        assert words == [f"process{chat.title} turn{n}" for n in range(100)]
        assert len(history.search(f"process{chat.title}", limit=1000)) == 100
    history.close()
