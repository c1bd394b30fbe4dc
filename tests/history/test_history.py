"""Chats as trees of turns: what every call of the store does."""

import os
import time
from pathlib import Path

import pytest

from gptoss_local.base.errors import ChatNotFoundError
from gptoss_local.talk.history import History, Turn


def ask(history: History, chat_id: int, parent_id: int | None, text: str) -> tuple[Turn, Turn]:
    """A question and its answer."""
    question = history.add(chat_id, parent_id, "user", text)
    answer = history.add(chat_id, question.id, "assistant", f"Answer to {text}", model="nano")
    return question, answer


def test_a_turn_keeps_everything(history: History) -> None:
    chat_id = history.new_chat("nano", "high")
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": ["ü", None, 2.5]}}}
    added = history.add(
        chat_id,
        None,
        "assistant",
        "text\nÄ 🙂",
        reasoning="because",
        tool_calls=(call,),
        model="nano",
        effort="high",
        state="failed",
        stats={"eval_count": 7, "done_reason": "stop"},
    )
    assert (added.content, added.reasoning, added.state) == ("text\nÄ 🙂", "because", "failed")
    assert added.tool_calls == (call,)
    assert added.stats == {"eval_count": 7, "done_reason": "stop"}
    assert abs(added.created_s - time.time()) < 60
    assert history.turn(added.id) == added
    result = history.add(chat_id, added.id, "tool", "3", tool_name="add")
    assert history.branch(result.id) == [added, result]


def test_update_replaces_what_is_given(history: History) -> None:
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "assistant", "", state="streaming")
    history.update(turn.id, content="Par", reasoning="France")
    history.update(turn.id, content="Paris")
    assert history.turn(turn.id).state == "streaming"
    history.update(turn.id, state="done", stats={"eval_count": 2}, tool_calls=[{"x": 1}])
    found = history.turn(turn.id)
    assert (found.content, found.reasoning, found.state) == ("Paris", "France", "done")
    assert (found.stats, found.tool_calls) == ({"eval_count": 2}, ({"x": 1},))
    history.update(turn.id)  # nothing to do
    assert history.turn(turn.id) == found
    history.update(turn.id, content="", tool_calls=[], stats={})  # empty is not "not given"
    assert history.turn(turn.id).content == ""
    assert history.turn(turn.id).tool_calls == ()


def test_the_title_is_the_first_question(history: History) -> None:
    chat_id = history.new_chat("nano", "low")
    assert history.chat(chat_id).title == ""
    system = history.add(chat_id, None, "system", "Be brief.")
    question = history.add(chat_id, system.id, "user", f"  Why\n\tis \x1b[31mthis{' long' * 40}?")
    title = history.chat(chat_id).title
    assert title.startswith("Why is this long long")
    assert title.endswith("…")
    assert len(title) <= 81
    history.add(chat_id, question.id, "user", "Something else")
    assert history.chat(chat_id).title == title
    history.rename(chat_id, "My\nname")
    assert history.chat(chat_id).title == "My name"


def test_chats_come_newest_first(history: History) -> None:
    ids = [history.new_chat("nano", "low", f"chat {n}") for n in range(4)]
    history.add(ids[1], None, "user", "again")
    assert [chat.id for chat in history.chats()] == [ids[1], ids[3], ids[2], ids[0]]
    assert [chat.id for chat in history.chats(limit=2)] == [ids[1], ids[3]]
    history.set_model(ids[0], "gpt-oss:20b", "high")
    assert (history.chat(ids[0]).model, history.chat(ids[0]).effort) == ("gpt-oss:20b", "high")


def test_no_such_chat_or_turn(history: History) -> None:
    chat_id, other_id = history.new_chat("nano", "low"), history.new_chat("nano", "low")
    turn = history.add(other_id, None, "user", "hi")
    for call in (
        lambda: history.chat(99),
        lambda: history.rename(99, "x"),
        lambda: history.set_model(99, "x", "low"),
        lambda: history.delete(99),
        lambda: history.add(99, None, "user", "x"),
        lambda: history.add(chat_id, 99, "user", "x"),
        lambda: history.add(chat_id, turn.id, "user", "parent in another chat"),
        lambda: history.update(99, content="x"),
        lambda: history.branch(99),
        lambda: history.siblings(99),
        lambda: history.select(99),
        lambda: history.export_json(99),
        lambda: history.export_markdown(99),
    ):
        with pytest.raises(ChatNotFoundError):
            call()
    assert history.chat(chat_id).n_turns == 0
    assert history.branch(None) == []


def test_ids_are_not_given_twice(history: History) -> None:
    """Another process may still show the deleted chat."""
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "user", "hi")
    history.delete(chat_id)
    new_id = history.new_chat("nano", "low")
    assert new_id > chat_id
    assert history.add(new_id, None, "user", "hi").id > turn.id
    with pytest.raises(ChatNotFoundError):
        history.update(turn.id, content="late")


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "\udcff tail", "\x1b]0;x\x07", "𝕏" * 70_000])
def test_any_text_can_be_stored(history: History, text: str) -> None:
    chat_id = history.new_chat(text[:9], "low", text[:9])
    turn = history.add(chat_id, None, "user", text, reasoning=text, stats={"text": text})
    history.update(turn.id, content=text, tool_calls=[{text[:9]: text}])
    kept = text.replace("\ud800", "?").replace("\udcff", "?").replace("\0", "\ufffd")
    assert history.turn(turn.id).content == kept
    assert history.turn(turn.id).tool_calls[0]  # its JSON is whole
    assert history.export_json(chat_id)
    assert history.export_markdown(chat_id)


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps a user's folder private by itself")
def test_only_the_owner_can_read(history: History, history_path: Path) -> None:
    history.new_chat("nano", "low")
    names = sorted(path.name for path in history_path.parent.iterdir())
    assert names == ["chats.sqlite3", "chats.sqlite3-shm", "chats.sqlite3-wal"]
    for path in (history_path.parent, *history_path.parent.iterdir()):
        assert path.stat().st_mode & 0o077 == 0


def test_close_ends_what_streams(history_path: Path) -> None:
    history = History(history_path)
    chat_id = history.new_chat("nano", "low")
    done = history.add(chat_id, None, "assistant", "", state="streaming")
    history.update(done.id, state="done")
    open_ = history.add(chat_id, done.id, "assistant", "so far", state="streaming")
    history.close()
    again = History(history_path)
    assert again.turn(done.id).state == "done"
    assert again.turn(open_.id).state == "stopped"
    again.close()


def test_a_fork_is_a_copy_of_the_branch(history: History) -> None:
    chat_id = history.new_chat("nano", "high", "Title")
    history.set_options(chat_id, {"temperature": 0.5})
    question, answer = ask(history, chat_id, None, "one")
    ask(history, chat_id, answer.id, "two")
    history.add(chat_id, question.id, "assistant", "another answer")
    new_id = history.fork(answer.id)
    copied = history.tree(new_id)
    assert [turn.content for turn in copied] == ["one", "Answer to one"]
    assert copied[1].parent_id == copied[0].id
    assert {turn.id for turn in copied}.isdisjoint(turn.id for turn in history.tree(chat_id))
    summary = history.chat(new_id)
    assert (summary.title, summary.effort, summary.options) == (
        "Title",
        "high",
        {"temperature": 0.5},
    )
    assert summary.leaf_id == copied[1].id
    history.delete(chat_id)
    assert history.tree(new_id) == copied
    with pytest.raises(ChatNotFoundError):
        history.fork(9999)
