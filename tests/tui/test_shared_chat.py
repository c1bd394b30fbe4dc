"""One chat that a terminal has open, and that others write into: a page, another terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.api.client import AsyncClient
from gptoss_local.settings import Settings
from gptoss_local.talk.history import History
from tests.conftest import RunningServer, run_server
from tests.server.page_client import Page
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat, run_chat
from tui.conversation import Conversation


@pytest.fixture
def other(history_path: Path) -> Iterator[History]:
    """The same file, as another process has it."""
    history = History(history_path)
    yield history
    history.close()


async def begun(chat: Chat) -> int:
    assert await chat.ask(FRANCE) == PARIS, chat.turns()[-1]
    chat_id = chat.app.chat.conversation.chat_id
    assert chat_id is not None
    return chat_id


async def test_turns_of_others_appear_as_they_are_written(
    open_chat: OpenChat, other: History
) -> None:
    async with open_chat(size=(80, 40)) as chat:
        chat_id = await begun(chat)
        asked = other.add(chat_id, chat.turns()[-1].id, "user", "Asked elsewhere")
        answer = other.add(chat_id, asked.id, "assistant", "", state="streaming")
        await chat.until(lambda: "Asked elsewhere" in chat.screen())
        other.update(answer.id, content="One **two**", reasoning="Hmm", state="streaming")
        await chat.until(lambda: "One two" in chat.screen())
        other.update(answer.id, content="One **two** three.", state="done")
        await chat.until(lambda: "One two three." in chat.screen())
        assert "…" not in chat.screen().splitlines()[-1]
        assert [turn.id for turn in chat.turns()][2:] == [asked.id, answer.id]
        assert len(chat.views()) == 4
        await chat.ask(FRANCE)  # continues after what the other one said
        assert chat.turns()[-2].parent_id == answer.id


async def test_versions_of_others_are_counted(open_chat: OpenChat, other: History) -> None:
    async with open_chat() as chat:
        chat_id = await begun(chat)
        other.add(chat_id, None, "user", "Another beginning")
        other.add(chat_id, chat.turns()[0].id, "assistant", "Another answer")
        await chat.until(lambda: chat.screen().count("‹ 1/2 ›") == 2)
        assert PARIS in chat.screen()


async def test_two_that_ask_at_the_same_time_make_versions(
    open_chat: OpenChat, other: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat() as chat:
        chat_id = await begun(chat)
        leaf = chat.turns()[-1]
        with monkeypatch.context() as patched:  # it has not seen the other one
            patched.setattr(Conversation, "catch_up", lambda _: None)
            theirs = other.add(chat_id, leaf.id, "user", "Theirs")
            await chat.ask("What is the capital of Japan?")
        assert chat.turns()[-2].parent_id == leaf.id
        siblings = other.siblings(theirs.id)
        assert siblings == [theirs.id, chat.turns()[-2].id]
        await chat.until(lambda: "‹ 2/2 ›" in chat.screen())
        assert len(other.tree(chat_id)) == 5


async def test_nothing_is_asked_after_an_answer_that_another_one_writes(
    open_chat: OpenChat, other: History
) -> None:
    async with open_chat(notifications=True) as chat:
        chat_id = await begun(chat)
        leaf = chat.turns()[-1]
        theirs = other.add(chat_id, leaf.id, "user", "Theirs")
        answer = other.add(chat_id, theirs.id, "assistant", "Half", state="streaming")
        await chat.until(lambda: "Half" in chat.screen())
        await chat.enter("Mine")
        await chat.until(lambda: "another window writes" in chat.notices())
        assert chat.app.chat.typed == "Mine"
        other.update(answer.id, content="Half and whole", state="done")
        await chat.press("enter")
        await chat.answered()
        assert [turn.content for turn in chat.turns()][3:5] == ["Half and whole", "Mine"]
        assert len(other.tree(chat_id)) == 6


async def test_a_chat_that_is_deleted_elsewhere(open_chat: OpenChat, other: History) -> None:
    async with open_chat(notifications=True) as chat:
        chat_id = await begun(chat)
        await chat.pilot.pause(0.6)
        other.delete(chat_id)
        await chat.until(lambda: "deleted elsewhere" in chat.notices())
        assert PARIS in chat.screen()  # what was said can still be read and copied
        other.new_chat("nano", "low")
        await chat.pilot.pause(0.6)
        assert chat.notices().count("deleted elsewhere") == 1
        await chat.press("ctrl+n")
        assert await chat.ask(FRANCE) == PARIS


@pytest.fixture
def home_of_both(empty_home: Path) -> Iterator[RunningServer]:
    with run_server(empty_home) as server:
        yield server


async def test_a_terminal_and_two_tabs_see_the_same(home_of_both: RunningServer) -> None:
    """The terminal begins; a tab continues; the terminal continues; a tab makes a version."""
    server = home_of_both
    client = AsyncClient(Settings(port=int(server.url.rpartition(":")[2]), home=server.home))
    path = server.home / "chats.sqlite3"
    with Page(server) as one, Page(server) as two:
        async with run_chat(client, path, size=(80, 60)) as chat:
            chat_id = await begun(chat)
            with one.listening(chat_id) as first, two.listening(chat_id) as second:
                asked = one.ask(chat_id, "What is the capital of Japan?", chat.turns()[-1].id)
                await chat.until(lambda: "Tokyo" in chat.screen(), timeout_s=60)
                await chat.until(lambda: chat.turns()[-1].state == "done")
                await chat.ask("What is 17 + 25?")
                last = chat.turns()[-1]
                assert chat.turns()[-2].parent_id == asked["id"]
                again = two.call("POST", f"chats/{chat_id}/answer", {"parent_id": last.parent_id})[
                    "answer"
                ]
                await chat.until(lambda: "‹ 1/2 ›" in chat.screen())
                two.answered(again)
                tree = {turn["id"]: turn for turn in two.tree(chat_id)}
                assert len(tree) == 7
                for heard in (first, second):
                    await chat.until(lambda heard=heard: heard.turns == tree)
                    assert not heard.gaps
    await client.close()
