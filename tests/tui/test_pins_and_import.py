"""Pinned chats come first, and an exported chat comes back as it was."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.snapshots.values import CALL, MARKDOWN, REASONING, STATS
from tests.tui.test_folds import LONG, SIZES, Recorder
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


@SIZES
async def test_a_pinned_chat_is_on_top(tmp_path: Path, size: tuple[int, int]) -> None:
    make_chats(tmp_path / "c", "First", "Second", "Third")
    async with run_chat(Recorder(), tmp_path / "c", size=size) as chat:
        await listed(chat)
        assert titles(chat) == ["Third", "Second", "First"]
        assert "F6 pin" in chat.screen()
        await chat.press("down", "down", "f6")
        assert titles(chat) == ["★ First", "Third", "Second"]
        await chat.press("escape")
        await chat.ask("Fourth")
        await listed(chat)
        assert titles(chat) == ["★ First", "Fourth", "Third", "Second"]
    async with run_chat(Recorder(), tmp_path / "c", size=size) as chat:
        await listed(chat)
        assert titles(chat)[0] == "★ First"
        await chat.press("f6")  # the one that was pinned is marked, and it moves
        assert titles(chat) == ["Fourth", "Third", "Second", "First"]
        await chat.press("f6", "enter")
        assert "❯ First" in chat.screen()


async def test_the_last_chat_is_the_newest_one(tmp_path: Path) -> None:
    """`--resume` does not open what is pinned."""
    make_chats(tmp_path / "c", "First", "Second")
    history = History(tmp_path / "c")
    history.pin(1, True)
    assert [chat.id for chat in history.chats()] == [2, 1]
    assert [chat.id for chat in history.chats(pinned_first=True)] == [1, 2]
    assert not history.chat(history.fork(history.chat(1).leaf_id or 0)).is_pinned
    history.close()


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


@SIZES
async def test_an_export_comes_back(tmp_path: Path, size: tuple[int, int]) -> None:
    file = tmp_path / "my chat.json"
    chat_id = a_chat(tmp_path / "a")
    async with run_chat(Recorder(), tmp_path / "a", chat_id, size=size) as chat:
        await chat.pilot.pause(0.2)
        shown = chat.screen()
        await chat.enter(f"/export {file}")
    make_chats(tmp_path / "b", "There before")
    async with run_chat(Recorder(), tmp_path / "b", size=size) as chat:
        await chat.press("ctrl+b")  # hide the list next to it, which has one chat more
        await chat.enter(f"/import {file}")
        assert "Imported “Wetter 日本 🎉”." in chat.notices()
        await chat.pilot.pause(0.2)
        await chat.until(lambda: chat.screen() == shown)
        assert chat.app.chat.conversation.preset == "reviewer"
        await listed(chat)
        assert titles(chat) == ["★ Wetter 日本 🎉", "There before"]
        await chat.press("f7", *str(file).replace("/", "?"))  # to see the dialog's own line
        assert "Import a chat" in chat.screen()
        await chat.press("escape")
    history = History(tmp_path / "b")
    again = history.export_json(2)
    history.close()
    assert without_ids(again) == without_ids(file.read_text())


async def test_import_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chat_id = a_chat(tmp_path / "a")
    history = History(tmp_path / "a")
    (tmp_path / "x.json").write_text(history.export_json(chat_id))
    history.close()
    async with run_chat(Recorder(), tmp_path / "a") as chat:
        await listed(chat)
        await chat.press("f7", *"y", "enter")
        assert "there is no file y" in chat.notices()
        await chat.press("f7", "x", "full_stop", *"json", "enter")
        assert titles(chat) == ["★ Wetter 日本 🎉"] * 2
        await chat.press("enter")
        assert chat.app.chat.conversation.chat_id == 2


def broken(change: str) -> bytes:
    turn = {"id": 1, "chat_id": 1, "parent_id": None, "role": "assistant", "content": "x",
            "created_s": 1.0}  # fmt: skip
    chat = {"id": 1, "title": "t", "model": "m", "effort": "low", "n_turns": 1, "created_s": 1.0,
            "updated_s": 1.0, "leaf_id": 1}  # fmt: skip
    changes: dict[str, Any] = {
        "call without a function": {"tool_calls": [{"name": "f"}]},
        "call that is text": {"tool_calls": ["f"]},
        "function that is text": {"tool_calls": [{"function": "f"}]},
        "arguments in a list": {"tool_calls": [{"function": {"name": "f", "arguments": []}}]},
        "count that is text": {"stats": {"n_reasoning_frames": "many"}},
        "times that are text": {"stats": {"latencies_ms": ["a"]}},
        "fold without an end": {"stats": {"folds": [[1]]}},
        "unknown role": {"role": "root"},
        "no text": {"content": None},
    }
    whole = {"format": "gptoss-chat", "version": 1, "chat": chat, "turns": [turn]}
    match change:
        case "empty":
            return b""
        case "cut":
            return msgspec.json.encode(whole)[:-20]
        case "deep":
            return b"[" * 200_000
        case "binary":
            return bytes(range(256))
        case "another program":
            return json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        case _:
            return json.dumps(whole | {"turns": [turn | changes[change]]}).encode()


@pytest.mark.parametrize(
    "change",
    ["empty", "cut", "deep", "binary", "another program", "call without a function",
     "call that is text", "function that is text", "arguments in a list", "count that is text",
     "times that are text", "fold without an end", "unknown role", "no text"],
)  # fmt: skip
async def test_a_broken_file_gets_a_sentence(tmp_path: Path, change: str) -> None:
    """And nothing is added."""
    (tmp_path / "x.json").write_bytes(broken(change))
    async with run_chat(Recorder(), tmp_path / "c") as chat:
        await chat.enter(f"/import {tmp_path / 'x.json'}")
        [said] = chat.notices().split("\n\n")
        assert "exported chat" in said
        assert "/export NAME.json" in said or "gptoss chats CHAT --json" in said
        assert chat.app.chat.parts.history.chats() == []


async def test_files_that_cannot_be_imported(tmp_path: Path) -> None:
    async with run_chat(Recorder(), tmp_path / "c") as chat:
        for argument, words in (("", "/import needs a file"), (str(tmp_path), "there is no file"),
                                ("/nowhere.json", "there is no file /nowhere.json")):  # fmt: skip
            await chat.enter(f"/import {argument}")
            assert words in chat.notices()
