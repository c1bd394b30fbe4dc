"""Several answers, several windows and a full disk: each answer stays in its own chat."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.errors import HistoryError
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Arguments
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer, call, installed
from tests.tui.test_tools import finds

NUMBERS = "one" + "".join(f" {n}" for n in range(100))


def slow() -> ScriptedServer:
    """A server with answers that end when the test lets them."""
    return ScriptedServer("one", [f" {n}" for n in range(100)], per_s=500, holds=True)


@pytest.fixture
def other(history_path: Path) -> Iterator[History]:
    """The same file, as another process has it."""
    history = History(history_path)
    yield history
    history.close()


def refuse_writes(chat: Chat, is_refused: bool) -> None:
    chat.app.chat.parts.history._database.execute(f"PRAGMA query_only = {is_refused:d}")


def said(chat: Chat) -> list[str]:
    return [turn.content for turn in chat.turns()]


def last_of(history: History, chat_id: int) -> Any:
    return history.branch(history.chat(chat_id).leaf_id)[-1]


async def open_other(chat: Chat, title: str) -> None:
    """Open a chat from the list of chats."""
    await chat.enter(f"/search {title}")
    await chat.until(lambda: chat.app.screen.query("OptionList"))
    await chat.press("enter")
    await chat.shows(f"❯ {title}")


async def test_an_answer_goes_on_in_its_own_chat(history_path: Path, other: History) -> None:
    server = slow()
    async with run_chat(server, history_path) as chat:
        await chat.enter("Count")
        await chat.shows("one 0 1")
        await chat.enter("And then")  # waits
        await chat.press("ctrl+n")
        assert "one 0" not in chat.screen()
        assert "»" not in chat.screen()
        await chat.enter("Beside it")
        await chat.until(lambda: len(server.bodies) == 2)
        assert last_of(other, 1).state == "streaming"
        await open_other(chat, "Count")
        assert chat.app.chat.is_answering
        await chat.shows("» And then")
        await chat.press("ctrl+n")
        await chat.type("a draft")
        server.may_end.set()
        await chat.until(lambda: chat.notices().count("“Count”: has its answer.") == 2)
        await chat.until(lambda: last_of(other, 2).state == "done")
        assert chat.turns() == []
        assert "a draft" in chat.app.chat.typed
        await chat.until(lambda: len(list(chat.app.chat.rooms)) == 1)
    turns = other.branch(other.chat(1).leaf_id)
    assert [turn.content for turn in turns] == ["Count", NUMBERS, "And then", NUMBERS]
    assert last_of(other, 2).content == NUMBERS


async def test_quitting_and_deleting_while_answers_stream(
    history_path: Path, other: History
) -> None:
    async with run_chat(slow(), history_path) as chat:
        for n in (1, 2, 3):
            await chat.enter("Count on")
            await chat.shows("one 0 1")
            assert chat.app.chat.conversation.chat_id == n
            await chat.press("ctrl+n")
        await chat.press("f2", "f8", "y")
        await chat.until(lambda: len(chat.app.chat.parts.history.chats()) == 2)
        await chat.press("escape")
        await chat.enter("/quit")
    for n in (1, 2):
        assert last_of(other, n).state == "stopped"
        assert last_of(other, n).content.startswith("one 0 1")
    assert "internal" not in chat.notices()


async def test_model_effort_and_tools_apply_from_the_next_message(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def waits(_arguments: Arguments) -> str:
        await may_end.wait()
        return "done"

    web = OwnSource("web", "searches", {"web.search": finds}, is_on=False)
    box = toolbox_of(OwnSource("slow", "waits", {"slow": waits}), web)
    server = ScriptedServer(
        before=[[call("slow")], "One."], tags=[installed("nano"), installed("other")]
    )
    async with run_chat(server, tmp_path / "c", make_toolbox=lambda: box) as chat:
        box.trusted.add("slow")
        await chat.enter("go")
        await chat.shows("running slow")
        for typed in ("/model other", "/effort high", "/tools web", "/tools slow"):
            await chat.enter(typed)
        assert "slow is off from your next message on." in chat.notices()
        may_end.set()
        assert await chat.answered() == "One."
        assert (chat.turns()[-1].model, chat.turns()[-1].effort) == ("nano", "medium")
        await chat.ask("again")
        assert (chat.turns()[-1].model, chat.turns()[-1].effort) == ("other", "high")
    made_with = [
        (body["model"], body["think"], [tool["function"]["name"] for tool in body["tools"]])
        for body in server.bodies
    ]
    before = ("nano", "medium", ["slow"])
    assert made_with == [before, before, ("other", "high", ["web.search"])]


async def test_a_question_waits_for_its_chat(tmp_path: Path) -> None:
    n_runs = 0

    async def runs(_arguments: Arguments) -> str:
        nonlocal n_runs
        n_runs += 1
        return "ran"

    box = toolbox_of(OwnSource("python", "runs code", {"python": runs}))
    server = ScriptedServer("Done.", before=[[call("python", code="1")]])
    async with run_chat(server, tmp_path / "c", make_toolbox=lambda: box) as chat:
        await chat.enter("go")
        await chat.asked()
        await chat.press("ctrl+n")
        await chat.tells("“go” waits for you: may it run python?")
        assert not chat.app.chat.question.display
        await chat.press("down", "enter")  # an answer to nothing
        assert n_runs == 0
        await open_other(chat, "go")
        await chat.answer("Allow once")
        assert await chat.answered() == "Done."
        assert n_runs == 1


async def test_another_window_writes_into_the_open_chat(history_path: Path, other: History) -> None:
    server, size = ScriptedServer("Well."), (80, 40)
    async with run_chat(server, history_path, size=size, notifications=True) as chat:
        await chat.ask("Mine")
        asked = other.add(1, chat.turns()[-1].id, "user", "Asked elsewhere")
        answer = other.add(1, asked.id, "assistant", "", state="streaming")
        await chat.shows("Asked elsewhere")
        other.update(answer.id, content="One **two**", reasoning="Hmm", state="streaming")
        await chat.shows("One two")
        await chat.enter("Mine, too")
        await chat.shows("another window writes")
        toast = chat.app.chat.query_one("Toast").region  # covers nothing
        assert not toast.overlaps(chat.app.chat.transcript.region)
        assert not toast.overlaps(chat.app.chat.prompt.region)
        assert chat.app.chat.typed == "Mine, too"
        other.update(answer.id, content="One **two** three.", state="done")
        await chat.shows("One two three.")
        assert [turn.id for turn in chat.turns()][2:] == [asked.id, answer.id]
        await chat.press("enter")
        await chat.answered()
        assert said(chat) == [
            *("Mine", "Well.", "Asked elsewhere", "One **two** three."),
            *("Mine, too", "Well."),
        ]
        assert len(other.tree(1)) == len(chat.views()) == 6
        other.add(1, None, "user", "Another beginning")
        await chat.shows("‹ 1/2 ›")


async def test_a_chat_that_is_deleted_elsewhere(history_path: Path, other: History) -> None:
    server = slow()
    async with run_chat(server, history_path, notifications=True) as chat:
        await chat.enter("go")
        await chat.shows("one 0 1")
        other.delete(1)
        server.may_end.set()
        assert await chat.answered() == NUMBERS
        await chat.press("alt+r", "f5", "alt+left", "f4")
        await chat.enter("second")
        await chat.tells("There is no chat 1")
        assert chat.app.chat.prompt.text == "second"
        await chat.press("ctrl+n", "enter")
        await chat.answered()
        other.delete(2)
        await chat.tells("deleted elsewhere")
        assert "99" in chat.screen()  # the conversation can still be read and copied
        await chat.enter("/new")
        await chat.ask("third")
        for key in ("f2", "f8", "f5", "enter"):
            chat_id = chat.app.chat.conversation.chat_id
            await chat.press("f2")
            await chat.shows("Search all chats")
            other.delete(chat_id)
            await chat.press(key)
            await chat.tells(f"There is no chat {chat_id}")
            await chat.press("escape")
            await chat.enter("/new")
            await chat.ask("anew")
        await chat.press("f2")
        await chat.shows("Search all chats")
        await chat.press("f8")
        await chat.shows("for good?")
        await chat.press("y")
        await chat.shows("There are no chats yet")
        await chat.press("down", "f8", "f2", "enter", "escape")
        assert await chat.ask("last") == NUMBERS
        assert said(chat) == ["last", NUMBERS]


async def test_an_answer_that_cannot_be_stored_goes_on_and_is_stored_later(
    history_path: Path,
) -> None:
    server = slow()
    async with run_chat(server, history_path) as chat:
        await chat.enter("go")
        await chat.shows("one 0 1")
        await chat.enter("second")
        await chat.enter("third")
        refuse_writes(chat, True)
        await chat.tells("cannot be used")
        server.may_end.set()
        assert await chat.answered() == NUMBERS
        await chat.until(lambda: chat.app.chat.prompt.text == "second\n\nthird")
        assert chat.app.chat.queue.is_empty
        history, turn_id = chat.app.chat.parts.history, chat.turns()[-1].id
        assert "99" not in history.turn(turn_id).content
        with pytest.raises(HistoryError, match="readonly"):
            chat.app.chat.conversation.store()  # as it ends
        refuse_writes(chat, False)
        await chat.ask("")
        assert (history.turn(turn_id).state, history.turn(turn_id).content) == ("done", NUMBERS)


@pytest.mark.quick
async def test_a_message_that_cannot_be_stored_comes_back(history_path: Path) -> None:
    async with run_chat(ScriptedServer("hello"), history_path) as chat:
        await chat.ask("first")
        refuse_writes(chat, True)
        await chat.enter("second")
        await chat.tells("cannot be used")
        assert chat.app.chat.prompt.text == "second"
        await chat.press("f4", "alt+r", "alt+left")
        assert said(chat) == ["first", "hello"]
        refuse_writes(chat, False)
        await chat.ask("")
        assert said(chat) == ["first", "hello", "second", "hello"]
        await chat.enter("/edit")
        refuse_writes(chat, True)
        chat.told.clear()
        await chat.enter(" again")
        await chat.tells("cannot be used")
        assert chat.app.chat.prompt.text == "second again"
        refuse_writes(chat, False)
        await chat.ask("")
        assert chat.app.chat.conversation.place(chat.turns()[-2].id) == (2, 2)
