"""Chats with a passphrase: no byte of them in the file, and nothing lost on the way."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gptoss_local.errors import AnsweringError, HistoryLockedError, UsageError
from gptoss_local.talk.history import History

WORD, OTHER = "Xyzzyplugh", "correct horse"


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


def test_no_byte_stays(history: History, other: History, history_path: Path) -> None:
    before = all_of(history)
    assert leaks(history_path)
    history.lock.set(OTHER)
    assert leaks(history_path) == []
    assert all_of(history) == before
    assert not history.lock.is_locked
    history.lock.remove(OTHER)
    assert all_of(history) == before


def test_another_process_is_locked_out_until_it_unlocks(
    history: History, other: History, chat_id: int
) -> None:
    before, version = all_of(other), other.version
    history.lock.set(OTHER)
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
    history.lock.remove(OTHER)
    assert all_of(other) == before


def test_what_is_written_later(history: History, history_path: Path, chat_id: int) -> None:
    history.lock.set(OTHER)
    new = history.new_chat("nano", "low")
    asked = history.add(new, None, "user", f"Later {WORD}?", stats={"folds": [[0, 5, WORD]]})
    told = history.add(new, asked.id, "assistant", "", state="streaming")
    history.update(told.id, content=f"A {WORD}", reasoning=WORD, state="done")
    assert WORD in history.chat(new).title
    assert not history.has_title(new)
    assert history.give_title(history.chat(new), f"Given {WORD}")
    history.set_system(new, f"Be {WORD}")
    history.fork(told.id)
    copy = history.import_json(history.export_json(chat_id))
    assert [t.content for t in history.tree(copy)] == [t.content for t in history.tree(chat_id)]
    assert leaks(history_path) == []
    history.delete(copy)
    assert {hit.chat_id for hit in history.search(f"later {WORD.lower()}")} >= {new}


def test_the_search_finds_the_same(history: History, chat_id: int) -> None:
    queries = (WORD, "answer", f'"folder {WORD}"', "You know", "😀", "nothing")

    def found() -> list[set[tuple[int, int | None]]]:
        return [{(hit.chat_id, hit.turn_id) for hit in history.search(query)} for query in queries]

    before = found()
    history.lock.set(OTHER)
    assert found() == before
    assert "An \x02answer\x03" in history.search("answer")[0].snippet
    history.lock.remove(OTHER)
    history.add(chat_id, None, "user", "An änswer")
    assert len(history.search("answer")) == 2  # the index is there again, with its triggers
    history.delete(chat_id)
    assert history.search(WORD) == []


def test_a_change_and_a_wrong_passphrase(
    history: History, other: History, history_path: Path
) -> None:
    before = all_of(history)
    history.lock.set("first")
    other.lock.unlock("first")
    sealed = history_path.read_bytes()
    for attempt in (
        lambda: history.lock.change(OTHER, "second"),
        lambda: history.lock.remove(OTHER),
    ):
        with pytest.raises(HistoryLockedError, match="wrong"):
            attempt()
    for empty in (lambda: history.lock.change("first", ""), lambda: history.lock.unlock("")):
        with pytest.raises(UsageError, match="empty"):
            empty()
    with pytest.raises(UsageError, match="have a passphrase"):
        history.lock.set("again")
    assert history_path.read_bytes() == sealed
    history.lock.change("first", "zweites Wört")
    assert all_of(other) == before  # the key is the same
    with pytest.raises(HistoryLockedError):
        other.lock.unlock("first")
    other.lock.unlock("zweites Wo\u0308rt")  # as another keyboard writes it
    history.lock.remove("zweites Wört")
    with pytest.raises(UsageError, match="no passphrase"):
        history.lock.remove("zweites Wört")


def test_an_answer_that_is_being_written_is_not_cut_off(history: History, chat_id: int) -> None:
    turn = history.add(chat_id, None, "assistant", "Once", state="streaming")
    with pytest.raises(AnsweringError):
        history.lock.set(OTHER)
    assert not history.lock.is_set
    history.update(turn.id, state="done")
    history.lock.set(OTHER)


SET = """
import sys
from pathlib import Path
from gptoss_local.talk.history import History
history = History(Path(sys.argv[1]))
print(flush=True)
getattr(history.lock, sys.argv[2])("correct horse")
print(flush=True)
"""


@pytest.mark.parametrize("action", ["set", "remove"])
def test_a_kill_in_the_middle_loses_nothing(
    history: History, history_path: Path, tmp_path: Path, chat_id: int, action: str
) -> None:
    for _ in range(100):
        history.add(chat_id, None, "user", f"{WORD} " * 5000)
    before = all_of(history)
    if action == "remove":
        history.lock.set(OTHER)
    history.close()
    taken_s, outcomes = 0.0, set()
    for share in (2.0, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        folder = tmp_path / f"killed-{share}"
        folder.mkdir()
        path = folder / history_path.name
        shutil.copy(history_path, path)
        command = [sys.executable, "-c", SET, str(path), action]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            start_s = time.monotonic()
            if share > 1:
                process.stdout.readline()
                taken_s = time.monotonic() - start_s
            time.sleep(share * taken_s if share < 1 else 0)
            process.send_signal(signal.SIGKILL)
        found = History(path)
        outcomes.add(found.lock.is_set)
        if found.lock.is_set:
            found.lock.unlock(OTHER)
        assert all_of(found) == before
        is_sealed = found.lock.is_set
        found.close()
        assert leaks(path) == ([] if is_sealed else [path.name])
    assert outcomes == {True, False}  # some before, some after
