"""Chats as trees of turns: each call of the store."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.errors import ChatNotFoundError
from gptoss_local.talk.history import History, Watch

pytestmark = pytest.mark.quick


def test_a_turn_keeps_everything(history: History) -> None:
    chat_id = history.new_chat("nano", "high")
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": ["ü", None, 2.5]}}}
    fields: dict[str, Any] = {
        "reasoning": "because",
        "tool_calls": (call,),
        "model": "nano",
        "effort": "high",
        "state": "failed",
        "stats": {"eval_count": 7, "done_reason": "stop"},
    }
    added = history.add(chat_id, None, "assistant", "text\nÄ 🙂", **fields)
    assert (added.content, abs(added.created_s - time.time()) < 60) == ("text\nÄ 🙂", True)
    assert {name: getattr(added, name) for name in fields} == fields
    assert history.turn(added.id) == added
    result = history.add(chat_id, added.id, "tool", "3", tool_name="add")
    assert history.branch(result.id) == [added, result]
    history.update(added.id)  # nothing to do
    assert history.turn(added.id) == added
    history.update(added.id, content="Par", reasoning="France", tool_calls=[{"x": 1}])
    found = history.turn(added.id)
    assert (found.content, found.reasoning, found.state) == ("Par", "France", "failed")
    assert (found.stats, found.tool_calls) == (fields["stats"], ({"x": 1},))
    history.update(added.id, content="", tool_calls=[], stats={})  # empty is not "not given"
    found = history.turn(added.id)
    assert (found.content, found.tool_calls, found.stats) == ("", (), {})


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


def test_a_fork_is_a_copy_of_the_branch(history: History) -> None:
    chat_id = history.new_chat("nano", "high", "Title")
    history.set_options(chat_id, {"temperature": 0.5})
    question = history.add(chat_id, None, "user", "one")
    answer = history.add(chat_id, question.id, "assistant", "Answer")
    history.add(chat_id, answer.id, "user", "two")
    history.add(chat_id, question.id, "assistant", "another answer")
    new_id = history.fork(answer.id)
    copied = history.tree(new_id)
    assert [turn.content for turn in copied] == ["one", "Answer"]
    assert copied[1].parent_id == copied[0].id
    assert {turn.id for turn in copied}.isdisjoint(turn.id for turn in history.tree(chat_id))
    new = history.chat(new_id)
    assert (new.title, new.effort, new.options) == ("Title", "high", {"temperature": 0.5})
    assert new.leaf_id == copied[1].id
    history.delete(chat_id)
    assert history.tree(new_id) == copied
    with pytest.raises(ChatNotFoundError):
        history.fork(9999)


def test_each_look_finds_what_was_written_since_by_anybody(history: History) -> None:
    other, watch = History(history.path), Watch(n_chats=10)
    chat_id = history.new_chat("nano", "low", "Sums")
    asked = history.add(chat_id, None, "user", "1 + 1?")
    answer = other.add(chat_id, asked.id, "assistant", "", state="streaming")

    def look(watched_id: int | None = chat_id) -> list[Any]:
        news = watch.look(history, watched_id)
        return [] if news is None else [[c.title for c in news.chats], news.chat, news.turns]

    assert look() == [["Sums"], history.chat(chat_id), [asked, answer]]
    assert not look()
    other.update(answer.id, content="2", state="streaming")
    assert look()[2] == [history.turn(answer.id)]
    other.close()
    assert [(turn.content, turn.state) for turn in look()[2]] == [("2", "stopped")]
    history.rename(chat_id, "Other")
    assert look() == [["Other"], history.chat(chat_id), []]
    hidden_id = history.temporary.new_chat("nano", "low")
    hidden = history.temporary.add(hidden_id, None, "user", "Hidden")
    assert look(hidden_id) == [["Other"], history.temporary.chat(hidden_id), [hidden]]
    history.delete(chat_id)
    assert look() == [[], None, []]
