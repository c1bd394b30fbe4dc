"""Files that are damaged, foreign or full, and processes that share one, or die."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gptoss_local.base.errors import ChatNotFoundError, HistoryError
from gptoss_local.talk.history import History
from tests.conftest import wait_until

pytestmark = pytest.mark.quick


def filled(path: Path, n_turns: int = 300) -> int:
    history = History(path)
    chat_id = history.new_chat("nano", "low")
    parent_id = None
    for n in range(n_turns):
        parent_id = history.add(chat_id, parent_id, "user", f"number{n} " * 50).id
    history.close()
    return chat_id


def refuses(path: Path) -> HistoryError:
    """The file must be as it was, with nothing left next to it."""
    before = path.read_bytes()
    with pytest.raises(HistoryError) as caught:
        History(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("content", [b"no database", os.urandom(9000), b"SQLite format 3\0" * 99])
def test_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chats.sqlite3"
    path.write_bytes(content)
    assert ".recover" in refuses(path).hint


def test_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    database.close()
    assert "another program" in refuses(path).message


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("is_cut", [False, True])
def test_damaged_in_the_middle(tmp_path: Path, share: float, is_cut: bool) -> None:
    """The rest of the file is junk or missing: our error, in any order of reading."""
    path = tmp_path / "chats.sqlite3"
    chat_id = filled(path)
    content = path.read_bytes()
    n_kept = int(len(content) * share) // 4096 * 4096
    path.write_bytes(content[:n_kept] + os.urandom(0 if is_cut else len(content) - n_kept))

    def read_all() -> None:
        history = History(path)
        try:
            history.tree(chat_id)
            history.search("number7")
            history.delete(chat_id)
        finally:
            history.close()

    with pytest.raises(HistoryError) as caught:
        read_all()
    assert not isinstance(caught.value, ChatNotFoundError)
    assert ".recover" in caught.value.hint


def test_close_ends_what_streams(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    history = History(path)
    chat_id = history.new_chat("nano", "low")
    done = history.add(chat_id, None, "assistant", "", state="streaming")
    history.update(done.id, state="done")
    history.add(chat_id, done.id, "assistant", "so far", state="streaming")
    history.close()
    again = History(path)
    assert [turn.state for turn in again.tree(chat_id)] == ["done", "stopped"]
    again.close()


def test_paths_that_can_and_cannot_be(tmp_path: Path) -> None:
    """A process may have died between making the file and its tables."""
    empty, folder = tmp_path / "empty", tmp_path / "folder"
    empty.touch()
    with pytest.raises(HistoryError, match="cannot be opened"):
        History(empty / "chats.sqlite3")
    folder.mkdir()
    with pytest.raises(HistoryError, match="unable to open"):
        History(folder)
    assert filled(empty, 1) == 1


FILL_DISK = """
import resource, sys
from pathlib import Path
from gptoss_local.base.errors import HistoryError
from gptoss_local.talk.history import History

history = History(Path(sys.argv[1]))
chat_id = history.new_chat("nano", "low")
kept = history.add(chat_id, None, "user", "kept")
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    for n in range(100):
        history.add(chat_id, kept.id, "user", "more " * 5000)
except HistoryError as error:
    assert error.hint, error
    assert history.turn(kept.id).content == "kept"
    print(n, error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
history.rename(chat_id, "there is room again")
"""


@pytest.mark.skipif(os.name != "posix", reason="no limit of file sizes on Windows")
def test_full_disk(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk's."""
    path = tmp_path / "chats.sqlite3"
    command = [sys.executable, "-c", FILL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    n_saved, _, message = done.stdout.partition(" ")
    assert str(path) in message
    history = History(path)
    assert history.chat(1).n_turns == int(n_saved) + 1
    assert history.chat(1).title == "there is room again"
    assert len(history.search("more", limit=100)) == int(n_saved)
    history.close()


def test_deleted_words_are_nowhere(tmp_path: Path) -> None:
    """Not in the index, not in free pages, not in the write-ahead log."""
    path = tmp_path / "chats.sqlite3"
    history = History(path)
    kept_id = history.new_chat("nano", "low", "kept title")
    history.add(kept_id, None, "user", "common kept")
    chat_id = history.new_chat("nano", "low", "zyxwvtitle")
    question = history.add(chat_id, None, "user", "common qwxzsecret " * 40)
    history.update(question.id, content="common qwxzedited " * 40)
    history.add(chat_id, question.id, "assistant", "common", reasoning="qwxzreason")
    secrets = (b"zyxwvtitle", b"qwxz")
    assert all(any(secret in p.read_bytes() for p in tmp_path.iterdir()) for secret in secrets)
    history.delete(chat_id)
    for file in tmp_path.iterdir():
        for secret in secrets:
            assert secret not in file.read_bytes(), file
    assert [hit.chat_id for hit in history.search("common")] == [kept_id]
    assert history.search("qwxzsecret") == history.search("zyxwvtitle") == []
    history.close()


def test_long_writes_of_another_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptoss_local.talk.history.schema._BUSY_S", 0.2)
    path = tmp_path / "chats.sqlite3"
    chat_id = filled(path, 1)
    history = History(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert history.chat(chat_id).n_turns == 1  # reading does not wait
    with pytest.raises(HistoryError, match="locked") as caught:
        history.rename(chat_id, "new")
    assert "Another gptoss process" in caught.value.hint
    other.execute("COMMIT")
    history.rename(chat_id, "new")
    other.close()
    history.close()


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


def test_a_stream_goes_on_while_its_process_lives_and_a_kill_loses_nothing(
    history_path: Path,
) -> None:
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
        n_handed_over = max(map(int, process.stdout.read().split()), default=0)
    turn = history.turn(turn_id)
    assert turn.state == "streaming"  # as it was when this one opened
    History(history_path).close()
    assert history.turn(turn_id).state == "stopped"
    n = int(turn.reasoning)
    assert n_handed_over <= n
    assert turn.content == " ".join(map(str, range(n % 500)))
    question = history.branch(turn_id)[0]
    assert [hit.turn_id for hit in history.search("count")] == [question.id]
    if n % 500 > 1:
        assert [hit.turn_id for hit in history.search("0 1")] == [turn_id]  # indexed, too
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
