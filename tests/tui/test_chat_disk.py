"""A disk that refuses what is to be stored, and chats that another process deletes."""

from pathlib import Path

import pytest

from gptoss_local.base.errors import HistoryError
from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer


def slow() -> ScriptedServer:
    return ScriptedServer("one", [f" {n}" for n in range(100)], per_s=500, holds=True)


def quick() -> ScriptedServer:
    return ScriptedServer("hello", [], 1)


def refuse_writes(chat: Chat, is_refused: bool) -> None:
    chat.app.chat.parts.history._database.execute(f"PRAGMA query_only = {is_refused:d}")


async def test_an_answer_goes_on_and_is_stored_later(history_path: Path) -> None:
    server = slow()
    async with run_chat(server, history_path) as chat:
        await chat.enter("go")
        await chat.shows("one 0 1")
        refuse_writes(chat, True)
        await chat.tells("cannot be used")
        server.may_end.set()
        assert (await chat.answered()).endswith("98 99")
        assert len(chat.told) == 1  # not once a second
        turn_id = chat.turns()[-1].id
        assert "99" not in chat.app.chat.parts.history.turn(turn_id).content
        with pytest.raises(HistoryError, match="readonly"):
            chat.app.chat.conversation.store()  # as it ends
        refuse_writes(chat, False)
        await chat.ask("and?")
        stored = chat.app.chat.parts.history.turn(turn_id)
        assert (stored.state, stored.content[-5:]) == ("done", "98 99")


@pytest.mark.quick
async def test_a_message_that_cannot_be_stored_comes_back(history_path: Path) -> None:
    async with run_chat(quick(), history_path) as chat:
        await chat.ask("first")
        refuse_writes(chat, True)
        await chat.enter("second")
        await chat.tells("cannot be used")
        assert chat.app.chat.prompt.text == "second"
        await chat.press("f4", "alt+r", "alt+left")
        assert [turn.content for turn in chat.turns()] == ["first", "hello"]

        refuse_writes(chat, False)
        await chat.press("enter")
        await chat.answered()
        assert [turn.content for turn in chat.turns()] == ["first", "hello", "second", "hello"]
        await chat.enter("/edit")
        refuse_writes(chat, True)
        chat.told.clear()
        await chat.type(" again")
        await chat.press("enter")
        await chat.tells("cannot be used")
        assert chat.app.chat.prompt.text == "second again"
        refuse_writes(chat, False)
        await chat.press("enter")
        await chat.answered()
        assert chat.app.chat.conversation.place(chat.turns()[-2].id) == (2, 2)


async def test_what_waits_comes_back_with_it(history_path: Path) -> None:
    server = slow()
    async with run_chat(server, history_path) as chat:
        await chat.enter("go")
        await chat.enter("second")
        await chat.enter("third")
        refuse_writes(chat, True)
        server.may_end.set()
        await chat.answered()
        await chat.until(lambda: chat.app.chat.prompt.text == "second\n\nthird")
        assert chat.app.chat.queue.is_empty
        refuse_writes(chat, False)


async def test_the_open_chat_is_deleted_elsewhere(history_path: Path) -> None:
    server = slow()
    async with run_chat(server, history_path) as chat:
        await chat.enter("go")
        await chat.shows("one 0 1")
        delete_elsewhere(history_path)
        server.may_end.set()
        assert (await chat.answered()).endswith("98 99")
        await chat.press("alt+r", "f5", "alt+left", "f4")
        await chat.enter("second")
        await chat.tells("There is no chat 1")
        assert chat.app.chat.prompt.text == "second"
        await chat.press("ctrl+n", "enter")
        await chat.until(lambda: len(chat.turns()) == 2)


async def test_the_open_chat_is_deleted_from_the_list(history_path: Path) -> None:
    async with run_chat(quick(), history_path) as chat:
        await chat.ask("first")
        await chat.press("f2")
        await chat.shows("Search all chats")
        await chat.press("f8")
        await chat.shows("for good?")
        await chat.press("y")
        await chat.shows("There are no chats yet")
        await chat.press("down", "f8", "f2", "enter", "escape")
        assert await chat.ask("second") == "hello"
        assert [turn.content for turn in chat.turns()] == ["second", "hello"]


def delete_elsewhere(path: Path, chat_id: int = 1) -> None:
    history = History(path)
    history.delete(chat_id)
    history.close()


async def test_a_chat_of_the_list_that_is_gone(history_path: Path) -> None:
    async with run_chat(quick(), history_path) as chat:
        for chat_id, key in enumerate(("f2", "f8", "f5", "enter"), 1):
            assert await chat.ask("first") == "hello"
            await chat.press("f2")
            await chat.shows("Search all chats")
            delete_elsewhere(history_path, chat_id)
            await chat.press(key)
            await chat.tells(f"There is no chat {chat_id}")
            await chat.press("escape")
            await chat.enter("/new")
