"""Messages that are typed while an answer streams: they wait, are taken back, or cut in."""

from tests.conftest import RunningServer
from tests.tui.running_chat import FRANCE, PARIS, OpenChat
from tests.tui.test_chat import begin_counting


async def test_a_message_waits_for_the_answer(open_chat: OpenChat, server: RunningServer) -> None:
    async with open_chat() as chat:
        await chat.ask("Hello!")
        with server.engine_suspended():  # or the answer may be there before the next message
            await chat.enter("Count from 1 to 60.")
            await chat.enter(FRANCE)
            await chat.shows(f"» {FRANCE}")
            assert chat.app.chat.prompt.text == ""
        await chat.until(lambda: len(chat.turns()) == 6)
        assert chat.turns()[3].content.endswith("60")
        assert await chat.answered() == PARIS
        assert "»" not in chat.screen()


async def test_escape_takes_it_back(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.enter("first")
        await chat.enter("second")
        await chat.until(lambda: "» first" in chat.screen() and "» second" in chat.screen())
        await chat.press("escape")
        assert chat.app.chat.prompt.text == "second"
        assert chat.app.chat.is_answering
        await chat.press("escape")
        assert chat.app.chat.prompt.text == "first\n\nsecond"
        await chat.press("escape")  # now it stops, and nothing is sent
        await chat.answered()
        assert len(chat.turns()) == 2
        assert chat.app.chat.prompt.text == "first\n\nsecond"


async def test_a_message_cuts_in(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await begin_counting(chat)
        await chat.enter("Hello!")
        await chat.type("/effort medium")  # a command is no message
        await chat.press("ctrl+s")
        assert chat.app.chat.is_answering
        await chat.type(FRANCE)
        await chat.press("ctrl+s")
        await chat.until(lambda: len(chat.turns()) == 6)
        await chat.answered()
        asked = [turn.content for turn in chat.turns() if turn.role == "user"]
        assert asked[1:] == [FRANCE, "Hello!"]
        assert chat.turns()[1].state == "stopped"
        assert "5, 6, 7" in chat.turns()[1].content
