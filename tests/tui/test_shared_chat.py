"""One chat that a terminal has open, and that others write into: a page, another terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat


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
        await chat.shows("Asked elsewhere")
        other.update(answer.id, content="One **two**", reasoning="Hmm", state="streaming")
        await chat.shows("One two")
        other.update(answer.id, content="One **two** three.", state="done")
        await chat.shows("One two three.")
        assert "…" not in chat.screen().splitlines()[-1]
        assert [turn.id for turn in chat.turns()][2:] == [asked.id, answer.id]
        assert len(chat.views()) == 4
        await chat.ask(FRANCE)  # continues after what the other one said
        assert chat.turns()[-2].parent_id == answer.id
        other.add(chat_id, None, "user", "Another beginning")
        other.add(chat_id, chat.turns()[0].id, "assistant", "Another answer")
        await chat.until(lambda: chat.screen().count("‹ 1/2 ›") == 2)


async def test_nothing_is_asked_after_an_answer_that_another_one_writes(
    open_chat: OpenChat, other: History
) -> None:
    async with open_chat(notifications=True) as chat:
        chat_id = await begun(chat)
        leaf = chat.turns()[-1]
        theirs = other.add(chat_id, leaf.id, "user", "Theirs")
        answer = other.add(chat_id, theirs.id, "assistant", "Half", state="streaming")
        await chat.shows("Half")
        await chat.enter("Mine")
        await chat.tells("another window writes")
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
        await chat.tells("deleted elsewhere")
        assert PARIS in chat.screen()  # what was said can still be read and copied
        other.new_chat("nano", "low")
        await chat.pilot.pause(0.6)
        assert chat.notices().count("deleted elsewhere") == 1
        await chat.press("ctrl+n")
        assert await chat.ask(FRANCE) == PARIS
