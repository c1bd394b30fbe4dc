"""Pinned chats come first, and an exported chat comes back as it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import seen
from tests.tui.snapshots.values import CALL, MARKDOWN, REASONING, STATS
from tests.tui.test_folds import LONG
from tui.screens.chats import ChatsDialog


def titles(chat: Chat) -> list[str]:
    """The titles in the list, from the top."""
    rows = [row.strip("│ ▊▎") for row in chat.screen().split("\n")]
    return [rows[n - 1] for n, row in enumerate(rows) if " ago · " in row or "just now · " in row]


def make_chats(path: Path, *names: str) -> None:
    history = History(path)
    for name in names:
        history.add(history.new_chat("nano", "low"), None, "user", name)
    history.close()


async def listed(chat: Chat) -> None:
    await chat.press("f2")
    await chat.until(lambda: isinstance(chat.app.screen, ChatsDialog))


async def test_a_pinned_chat_is_on_top(tmp_path: Path) -> None:
    make_chats(tmp_path / "c", "First", "Second", "Third")
    async with run_chat(seen(), tmp_path / "c") as chat:
        await listed(chat)
        assert titles(chat) == ["Third", "Second", "First"]
        await chat.shows("F6 pin")
        await chat.press("down", "down", "f6")
        assert titles(chat) == ["★ First", "Third", "Second"]
        await chat.press("escape")
        await chat.ask("Fourth")
        await listed(chat)
        assert titles(chat) == ["★ First", "Fourth", "Third", "Second"]
    async with run_chat(seen(), tmp_path / "c") as chat:
        await listed(chat)
        assert titles(chat)[0] == "★ First"
        await chat.press("f6")  # the one that was pinned is marked, and it moves
        assert titles(chat) == ["Fourth", "Third", "Second", "First"]
        await chat.press("f6", "enter")
        await chat.shows("❯ First")


def a_chat(path: Path) -> int:
    """A chat with everything that one can have."""
    history = History(path)
    chat_id = history.new_chat("gpt-oss:20b", "high", "Wetter 日本 🎉", preset="reviewer")
    history.set_options(chat_id, {"temperature": 0.7, "truncate": True})
    history.pin(chat_id, True)
    system = history.add(chat_id, None, "system", "Be brief.\n\n" * 20)
    folds = {"folds": [[4, 4 + len(LONG), "pasted: 400 lines, ~2,373 tokens"]]}
    asked = history.add(chat_id, system.id, "user", f"See {LONG}", stats=folds)
    called = history.add(
        chat_id, asked.id, "assistant", "", reasoning=REASONING, tool_calls=(CALL,), stats=STATS
    )
    result = {"seconds": 0.25, "is_error": False}
    got = history.add(chat_id, called.id, "tool", "21", tool_name="get_weather", stats=result)
    made_with: Any = {"model": "nano", "effort": "low"}
    history.add(chat_id, got.id, "assistant", "It is", state="stopped", **made_with)
    history.add(chat_id, got.id, "assistant", MARKDOWN, stats=STATS, **made_with)
    history.close()
    return chat_id


def without_ids(text: str) -> Any:
    """An export in which turns are named by their order."""
    data = json.loads(text)
    order = {None: None} | {turn["id"]: n for n, turn in enumerate(data["turns"])}
    for turn in data["turns"]:
        turn |= {"id": order[turn["id"]], "parent_id": order[turn["parent_id"]], "chat_id": 0}
    data["chat"] |= {"id": 0, "leaf_id": order[data["chat"]["leaf_id"]]}
    return data


async def test_an_export_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my chat.json"
    chat_id = a_chat(tmp_path / "a")
    async with run_chat(seen(), tmp_path / "a", chat_id) as chat:
        await chat.pilot.pause(0.2)
        shown = chat.screen()
        await chat.enter(f"/export {file}")
    make_chats(tmp_path / "b", "There before")
    async with run_chat(seen(), tmp_path / "b") as chat:
        await chat.press("ctrl+b")  # hide the list next to it, which has one chat more
        await chat.enter(f"/import {file}")
        assert "Imported “Wetter 日本 🎉”." in chat.notices()
        await chat.pilot.pause(0.2)
        await chat.until(lambda: chat.screen() == shown)
        assert chat.app.chat.conversation.preset == "reviewer"
        await listed(chat)
        assert titles(chat) == ["★ Wetter 日本 🎉", "There before"]
        await chat.press("f7", "y", "enter")
        await chat.tells("there is no file y")
        file.rename(tmp_path / "x")
        await chat.press("f7", "x", "enter")
        await chat.until(lambda: titles(chat)[:2] == ["★ Wetter 日本 🎉"] * 2)
    history = History(tmp_path / "b")
    again = history.export_json(2)
    history.close()
    assert without_ids(again) == without_ids((tmp_path / "x").read_text())


_TURN = {"id": 1, "chat_id": 1, "parent_id": None, "role": "assistant", "content": "x",
         "created_s": 1.0}  # fmt: skip
_CHAT = {"id": 1, "title": "t", "model": "m", "effort": "low", "n_turns": 1, "created_s": 1.0,
         "updated_s": 1.0, "leaf_id": 1}  # fmt: skip
_CHANGES: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "f"}]},
    {"tool_calls": ["f"]},
    {"tool_calls": [{"function": {"name": "f", "arguments": []}}]},
    {"stats": {"n_reasoning_frames": "many"}},
    {"stats": {"latencies_ms": ["a"]}},
    {"stats": {"folds": [[1]]}},
    {"content": None},
]


async def test_what_cannot_be_imported(tmp_path: Path) -> None:
    """It gets a sentence, and nothing is added."""
    whole = {"format": "gptoss-chat", "version": 1, "chat": _CHAT}
    changed = [json.dumps(whole | {"turns": [_TURN | change]}).encode() for change in _CHANGES]
    file = tmp_path / "x.json"
    async with run_chat(seen(), tmp_path / "c") as chat:
        for data in (*changed, b"[" * 200_000, bytes(range(256)), b'{"messages": []}'):
            file.write_bytes(data)
            chat.told.clear()
            await chat.enter(f"/import {file}")
            await chat.tells("exported chat")
            assert "/export NAME.json" in chat.notices() or "chats CHAT --json" in chat.notices()
        for argument, words in (("", "needs a file"), (str(tmp_path), "there is no file"),
                                ("/nowhere.json", "there is no file /nowhere.json")):  # fmt: skip
            await chat.enter(f"/import {argument}")
            await chat.tells(words)
        assert chat.app.chat.parts.history.chats() == []
