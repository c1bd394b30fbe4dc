"""Random operations on trees, by two processes' worth of connections, against a plain model."""

import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from gptoss_local.base.errors import ChatNotFoundError
from gptoss_local.talk.history import History, Turn

WORDS = ("apple", "Banana", "çédille", "snake_case", "don't", "x", "中文", "*", '"', "NEAR")
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)


@dataclass
class ModelTurn:
    chat_id: int
    parent_id: int | None
    content: str
    state: str = "done"


@dataclass
class Model:
    """The content that the file should have: turns by id, and each chat's title and leaf."""

    turns: dict[int, ModelTurn] = field(default_factory=dict)
    titles: dict[int, str] = field(default_factory=dict)
    leaves: dict[int, int | None] = field(default_factory=dict)

    def branch(self, turn_id: int | None) -> list[int]:
        found: list[int] = []
        while turn_id is not None:
            found.insert(0, turn_id)
            turn_id = self.turns[turn_id].parent_id
        return found

    def below(self, turn_id: int) -> list[int]:
        return [t for t in self.turns if turn_id in self.branch(t)]


class Chats(RuleBasedStateMachine):
    """Every step goes through one of two connections at random."""

    chats = Bundle("chats")
    turns = Bundle("turns")
    which = st.integers(0, 1)
    states = st.sampled_from([None, "done", "failed"])

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "chats.sqlite3"
        self.connections = [History(self.path), History(self.path)]
        self.seen: dict[int, tuple[int, dict[int, Turn]]] = {}  # by chat
        self.model = Model()

    @rule(target=chats, which=which, title=texts)
    def new_chat(self, which: int, title: str) -> int:
        chat_id = self.connections[which].new_chat("nano", "low", title)
        self.model.titles[chat_id], self.model.leaves[chat_id] = title, None
        return chat_id

    @rule(
        target=turns,
        which=which,
        chat_id=chats,
        content=texts,
        role=st.sampled_from(["user", "assistant"]),
        state=st.sampled_from(["done", "streaming"]),
        data=st.data(),
    )
    def add(
        self, which: int, chat_id: int, content: str, role: str, state: str, data: st.DataObject
    ) -> int:
        mine = [t for t, turn in self.model.turns.items() if turn.chat_id == chat_id]
        parent_id = data.draw(st.sampled_from([None, *mine]))
        turn = self.connections[which].add(chat_id, parent_id, role, content, state=state)  # type: ignore[arg-type]
        self.model.turns[turn.id] = ModelTurn(chat_id, parent_id, content, state)
        self.model.leaves[chat_id] = turn.id
        if role == "user":
            self.model.titles[chat_id] = self.model.titles[chat_id] or content
        return turn.id

    @rule(
        which=which, turn_id=turns, content=texts, state=st.sampled_from([None, "done", "failed"])
    )
    def update(self, which: int, turn_id: int, content: str, state: str | None) -> None:
        turn = self.model.turns.get(turn_id)
        if turn is None:
            with pytest.raises(ChatNotFoundError):
                self.connections[which].update(turn_id, content=content)
            return
        self.connections[which].update(turn_id, content=content, state=state)  # type: ignore[arg-type]
        turn.content, turn.state = content, state or turn.state

    @rule(which=which, turn_id=turns)
    def select(self, which: int, turn_id: int) -> None:
        if turn_id not in self.model.turns:
            with pytest.raises(ChatNotFoundError):
                self.connections[which].select(turn_id)
            return
        leaf_id = max(self.model.below(turn_id))
        selected = self.connections[which].select(turn_id)
        assert [turn.id for turn in selected] == self.model.branch(leaf_id)
        self.model.leaves[self.model.turns[turn_id].chat_id] = leaf_id

    @rule(which=which, chat_id=chats, title=texts)
    def rename(self, which: int, chat_id: int, title: str) -> None:
        self.connections[which].rename(chat_id, title)
        self.model.titles[chat_id] = title

    @rule(which=which, chat_id=consumes(chats))
    def delete(self, which: int, chat_id: int) -> None:
        self.connections[which].delete(chat_id)
        del self.model.titles[chat_id], self.model.leaves[chat_id]
        self.model.turns = {t: u for t, u in self.model.turns.items() if u.chat_id != chat_id}

    @rule(which=which)
    def reopen(self, which: int) -> None:
        """Streaming turns of this connection end; the other connection's continue."""
        streaming = [t for t, turn in self.model.turns.items() if turn.state == "streaming"]
        self.connections[which].close()
        self.connections[which] = History(self.path)
        for turn_id in streaming:
            self.model.turns[turn_id].state = self.connections[which].turn(turn_id).state
            assert self.model.turns[turn_id].state in ("streaming", "stopped")

    @rule(which=which, chat_id=chats)
    def catch_up(self, which: int, chat_id: int) -> None:
        history, (since, seen) = self.connections[which], self.seen.get(chat_id, (0, {}))
        changed, since = history.changed(chat_id, since)
        self.seen[chat_id] = since, seen | {turn.id: turn for turn in changed}
        assert [*self.seen[chat_id][1].values()] == history.tree(chat_id)
        assert history.changed(chat_id, since) == ([], since)

    @rule(which=which, word=st.sampled_from(["apple", "CEDILLE", "snake_case", "x", "中文", "*"]))
    def search(self, which: int, word: str) -> None:
        plain = word.lower().replace("cedille", "çédille")
        expected = {
            t
            for t, turn in self.model.turns.items()
            if plain in turn.content.lower().split() and turn.state != "streaming"
        }
        hits = self.connections[which].search(word, limit=10_000)
        assert {hit.turn_id for hit in hits} - {None} == expected
        titled = {c for c, title in self.model.titles.items() if plain in title.lower().split()}
        in_turns = {self.model.turns[t].chat_id for t in expected}
        assert {hit.chat_id for hit in hits if hit.turn_id is None} == titled - in_turns

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def is_as_the_model(self) -> None:
        history = self.connections[0]
        summaries = {chat.id: chat for chat in history.chats(limit=10_000)}
        assert {c: chat.title for c, chat in summaries.items()} == self.model.titles
        assert {c: chat.leaf_id for c, chat in summaries.items()} == self.model.leaves
        for chat_id, chat in summaries.items():
            found = {
                turn.id: ModelTurn(turn.chat_id, turn.parent_id, turn.content, turn.state)
                for turn in history.tree(chat_id)
            }
            expected = {t: u for t, u in self.model.turns.items() if u.chat_id == chat_id}
            assert found == expected
            assert chat.n_turns == len(expected)
            assert [t.id for t in history.branch(chat.leaf_id)] == self.model.branch(chat.leaf_id)
            for turn_id, turn in expected.items():
                versions = [t for t, u in expected.items() if u.parent_id == turn.parent_id]
                assert history.siblings(turn_id) == versions

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for history in self.connections:
            history.close()
        History(self.path).close()
        database = sqlite3.connect(self.path)
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        if not database.execute("SELECT 1 FROM turn WHERE state = 'streaming'").fetchall():
            for table in ("turn_words", "chat_words"):  # the index has the words of the texts
                database.execute(
                    f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)"
                )
        database.close()
        self.folder.cleanup()


Chats.TestCase.settings = settings(stateful_step_count=30)
TestChats = Chats.TestCase
