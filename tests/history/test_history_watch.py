"""Changes by other processes, and other instructions for a chat."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.talk.history import History, Turn

pytestmark = pytest.mark.quick


@pytest.fixture
def other(history_path: Path, history: History) -> Iterator[History]:
    opened = History(history_path)
    yield opened
    opened.close()


def test_the_version_says_who_has_written(history: History, other: History) -> None:
    before = history.version
    assert history.version == before
    other.new_chat("nano", "low")
    theirs = history.version
    assert (theirs[0] != before[0], theirs[1] == before[1]) == (True, True)
    history.new_chat("nano", "low")
    ours = history.version
    assert (ours[0] == theirs[0], ours[1] != theirs[1]) == (True, True)
    history.chats()
    assert history.version == ours


def test_turns_that_have_changed(history: History, other: History) -> None:
    chat_id, elsewhere = history.new_chat("nano", "low"), history.new_chat("nano", "low")
    asked = history.add(chat_id, None, "user", "Why?")
    seen: dict[int, int] = {}
    assert history.changed(chat_id, seen) == [asked]
    assert history.changed(chat_id, seen) == []
    other.add(elsewhere, None, "user", "Not here")
    answer = other.add(chat_id, asked.id, "assistant", "", state="streaming")
    assert history.changed(chat_id, seen) == [answer]
    other.update(answer.id, content="Because", stats={"eval_count": 2}, state="done")
    (done,) = history.changed(chat_id, seen)
    assert (done.content, done.state, done.stats) == ("Because", "done", {"eval_count": 2})
    other.rename(chat_id, "A title")
    assert history.changed(chat_id, seen) == []
    other.delete(chat_id)
    assert history.changed(chat_id, seen) == []
    assert not history.has(chat_id)


def texts(turns: list[Turn]) -> list[str]:
    return [turn.content for turn in turns]


@pytest.mark.parametrize("first", ["", "Be brief."])
def test_other_instructions_begin_another_branch(history: History, first: str) -> None:
    chat_id = history.new_chat("nano", "low")
    parent_id = history.add(chat_id, None, "system", first).id if first else None
    asked = history.add(chat_id, parent_id, "user", "Why?")
    answer = history.add(
        chat_id, asked.id, "assistant", "So.", reasoning="Hm", model="nano", stats={"eval_count": 1}
    )
    before = history.tree(chat_id)
    assert history.set_system(chat_id, first) == history.branch(answer.id)
    branch = history.set_system(chat_id, "Be long.")
    assert texts(branch) == ["Be long.", "Why?", "So."]
    assert (branch[2].reasoning, branch[2].stats) == ("Hm", {"eval_count": 1})
    assert history.chat(chat_id).leaf_id == branch[2].id
    assert texts(history.set_system(chat_id, "")) == ["Why?", "So."]
    assert history.tree(chat_id)[: len(before)] == before
    assert [hit.turn_id for hit in history.search("long")] == [branch[0].id]
