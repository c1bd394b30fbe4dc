"""Chats with a passphrase: no byte of them in the file, and nothing lost on the way."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.errors import AnsweringError, HistoryError, HistoryLockedError, UsageError
from gptoss_local.talk.history import History
from gptoss_local.talk.history.export import parse_json

WORD, OTHER = "Xyzzyplugh", "correct horse"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passphrase takes a millisecond, not half a second."""
    monkeypatch.setattr("gptoss_local.talk.history.lock._N", 1 << 10)


@pytest.fixture
def chat_id(history: History) -> int:
    """A chat with the word in all its texts."""
    chat_id = history.new_chat("nano", "low", f"Title {WORD}", preset=f"preset {WORD}")
    history.set_options(chat_id, {"tools": WORD, "num_ctx": 5})
    history.move(chat_id, f"folder {WORD}")
    system = history.add(chat_id, None, "system", f"You know {WORD}.")
    call = {"function": {"name": WORD, "arguments": {"a": WORD}}}
    answer = history.add(
        chat_id,
        system.id,
        "assistant",
        f"An answer, {WORD}. Ünïcode \U0001f600",
        reasoning=f"Thought of {WORD}",
        tool_calls=(call,),
        stats={"error": WORD},
    )
    history.add(chat_id, answer.id, "tool", WORD, tool_name=WORD)
    return chat_id


@pytest.fixture
def other(history: History, history_path: Path, chat_id: int) -> Iterator[History]:
    """Another process, in effect, with the same file."""
    history = History(history_path)
    yield history
    history.close()


def leaks(path: Path) -> list[str]:
    signs = [sign.encode() for sign in (WORD, WORD.lower())]
    files = [each for each in path.parent.rglob("*") if each.is_file()]
    return [each.name for each in files if any(sign in each.read_bytes() for sign in signs)]


def all_of(history: History) -> list[bytes]:
    chats = history.chats()
    return [msgspec.json.encode([chat, history.tree(chat.id)]) for chat in chats]


def test_another_process_is_locked_out_until_it_unlocks(
    history: History, other: History, chat_id: int
) -> None:
    before, version = all_of(other), other.version
    history.lock.change(None, OTHER)
    assert other.lock.is_locked
    assert other.version != version
    for call in (
        other.chats,
        other.questions,
        lambda: other.tree(chat_id),
        lambda: other.search("answer"),
        lambda: other.add(chat_id, None, "user", WORD),
        lambda: other.rename(chat_id, WORD),
        lambda: other.delete(chat_id),
    ):
        with pytest.raises(HistoryLockedError) as caught:
            call()
        assert caught.value.hint
    temporary = other.temporary
    assert temporary.tree(temporary.new_chat("nano", "low")) == []
    with pytest.raises(HistoryLockedError, match="wrong"):
        other.lock.unlock("Correct horse")
    assert other.lock.is_locked
    version = other.version
    other.lock.unlock(OTHER)
    assert other.version != version
    assert all_of(other) == before
    history.lock.change(OTHER, None)
    assert all_of(other) == before


def test_later_texts_are_encrypted(history: History, history_path: Path, chat_id: int) -> None:
    history.lock.change(None, OTHER)
    new = history.new_chat("nano", "low")
    asked = history.add(new, None, "user", f"Later {WORD}?", stats={"folds": [[0, 5, WORD]]})
    told = history.add(new, asked.id, "assistant", "", state="streaming")
    history.update(told.id, content=f"A {WORD}", reasoning=WORD, state="done")
    assert WORD in history.chat(new).title
    assert not history.has_title(new)
    assert history.give_title(history.chat(new), f"Given {WORD}")
    history.set_system(new, f"Be {WORD}")
    history.fork(told.id)
    copy = history.add_tree(*parse_json(history.export_json(chat_id))).id
    assert [t.content for t in history.tree(copy)] == [t.content for t in history.tree(chat_id)]
    assert leaks(history_path) == []
    history.delete(copy)
    assert {hit.chat_id for hit in history.search(f"later {WORD.lower()}")} >= {new}


def test_all_is_as_it_was_and_the_search_finds_the_same(
    history: History, history_path: Path, chat_id: int
) -> None:
    queries = (WORD, "answer", f'"folder {WORD}"', "You know", "😀", "nothing")

    def found() -> list[set[tuple[int, int | None]]]:
        return [{(hit.chat_id, hit.turn_id) for hit in history.search(query)} for query in queries]

    before, hits = all_of(history), found()
    assert leaks(history_path)
    history.lock.change(None, OTHER)
    assert not history.lock.is_locked
    assert leaks(history_path) == []
    assert (all_of(history), found()) == (before, hits)
    assert "An \x02answer\x03" in history.search("answer")[0].snippet
    history.lock.change(OTHER, None)
    assert (all_of(history), found()) == (before, hits)
    history.add(chat_id, None, "user", "An änswer")
    assert len(history.search("answer")) == 2  # the index is there again, with its triggers
    history.delete(chat_id)
    assert history.search(WORD) == []


def test_a_change_and_a_wrong_passphrase(
    history: History, other: History, history_path: Path
) -> None:
    before = all_of(history)
    history.lock.change(None, "first")
    other.lock.unlock("first")
    sealed = history_path.read_bytes()
    for new in ("second", None):
        with pytest.raises(HistoryLockedError, match="wrong"):
            history.lock.change(OTHER, new)
    with pytest.raises(UsageError, match="empty"):
        history.lock.change("first", "")
    with pytest.raises(UsageError, match="empty"):
        history.lock.unlock("")
    with pytest.raises(UsageError, match="have a passphrase"):
        history.lock.change(None, "again")
    assert history_path.read_bytes() == sealed
    history.lock.change("first", "zweites Wört")
    assert all_of(history) == before
    assert other.lock.is_locked
    with pytest.raises(HistoryLockedError):
        other.lock.unlock("first")
    other.lock.unlock("zweites Wo\u0308rt")  # as another keyboard writes it
    assert all_of(other) == before
    history.lock.change("zweites Wört", None)
    with pytest.raises(UsageError, match="no passphrase"):
        history.lock.change("zweites Wört", None)


TEXTS = "(SELECT content FROM turn WHERE id = 1)"
PLACE = "turn.id, turn.chat_id, turn.parent_id, turn.role"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE turn SET content = 'INJECTED' WHERE id = 2",
        "UPDATE chat SET title = folder, folder = title",
        "UPDATE chat SET model = effort",
        "UPDATE turn SET content = reasoning WHERE id = 2",
        f"UPDATE turn SET content = {TEXTS} WHERE id = 3",  # of another row
        f"UPDATE turn SET content = {TEXTS} WHERE id = 4",  # and of another chat
        "UPDATE chat SET title = (SELECT title FROM chat WHERE id = 1)",
        "UPDATE turn SET role = 'system' WHERE id = 2",
        "UPDATE turn SET chat_id = 2",
        "UPDATE turn SET parent_id = 1 WHERE id = 3",
        "UPDATE turn SET parent_id = 4 WHERE id = 1",
        "UPDATE turn SET id = 9 WHERE id = 3",
        "DELETE FROM turn WHERE id = 1",  # the instructions
        "INSERT INTO turn SELECT 9, chat_id, 3, 'system', '', '', '[]', '', '', '', 'done', '{}', "
        "1.0, '', 0 FROM turn WHERE id = 3",
        "CREATE TRIGGER evil AFTER INSERT ON turn BEGIN UPDATE turn SET content = "
        f"sealed('INJECTED', 'turn.content', {PLACE}) WHERE id = 1; END",
        "UPDATE passphrase SET n = 1 << 27",
        "UPDATE passphrase SET p = 1 << 20",
        "UPDATE passphrase SET salt = zeroblob(1 << 20)",
        "DELETE FROM passphrase",
    ],
)
def test_changes_by_another_program_are_refused(
    history: History, history_path: Path, chat_id: int, change: str
) -> None:
    another = history.new_chat("nano", "low", "Another chat")
    history.add(another, None, "user", "Another question")
    history.lock.change(None, OTHER)
    history.close()
    with sqlite3.connect(history_path) as database:
        assert database.execute(change).rowcount
    database.close()

    def use() -> None:
        found = History(history_path)
        try:
            if found.lock.is_set:
                found.lock.unlock(OTHER)
            found.add(another, None, "user", "More")
            for chat in found.chats():
                found.tree(chat.id)
                found.branch(chat.leaf_id)
        finally:
            found.close()

    with pytest.raises(HistoryError) as caught:
        use()
    assert not isinstance(caught.value, HistoryLockedError)
    if "TRIGGER" not in change:
        assert caught.value.hint


def test_a_leaf_of_another_chat_is_none(history: History, history_path: Path, chat_id: int) -> None:
    another = history.new_chat("nano", "low", "Another chat")
    history.lock.change(None, OTHER)
    with sqlite3.connect(history_path) as database:
        database.execute("UPDATE chat SET leaf_id = 3 WHERE id = ?", (another,))
    database.close()
    assert history.chat(another).leaf_id is None
    assert history.chat(chat_id).leaf_id == 3


def test_an_answer_that_is_being_written_is_not_cut_off(history: History, chat_id: int) -> None:
    turn = history.add(chat_id, None, "assistant", "Once", state="streaming")
    with pytest.raises(AnsweringError):
        history.lock.change(None, OTHER)
    assert not history.lock.is_set
    history.update(turn.id, state="done")
    history.lock.change(None, OTHER)


SET = """
import os, signal, sys
from pathlib import Path
from gptoss_local.talk.history import History, lock
lock._N = 1 << 10
path, action, place = sys.argv[1:]

def begins(statement):
    if statement.startswith(place):
        os.kill(os.getpid(), signal.SIGKILL)

history = History(Path(path))
history.lock._database.set_trace_callback(begins)
old, new = (None, "correct horse") if action == "set" else ("correct horse", None)
history.lock.change(old, new)
"""


@pytest.mark.parametrize("action", ["set", "remove"])
@pytest.mark.parametrize(
    ("place", "is_done"),
    [("UPDATE turn", False), ("COMMIT", False), ("VACUUM", True), ("PRAGMA wal_", True)],
)
def test_a_kill_in_the_middle_loses_nothing(
    history: History, history_path: Path, chat_id: int, action: str, place: str, is_done: bool
) -> None:
    for _ in range(20):
        history.add(chat_id, None, "user", f"{WORD} " * 5000)
    before = all_of(history)
    if action == "remove":
        history.lock.change(None, OTHER)
    history.close()
    command = [sys.executable, "-c", SET, str(history_path), action, place]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    found = History(history_path)
    is_sealed = found.lock.is_set
    assert is_sealed == (is_done == (action == "set"))
    if is_sealed:
        found.lock.unlock(OTHER)
    assert all_of(found) == before
    found.close()
    assert leaks(history_path) == ([] if is_sealed else [history_path.name])
