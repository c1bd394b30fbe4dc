"""The start page, the list of chats next to the open one, notices, previews, keys."""

from pathlib import Path

from textual.widgets import Static

from gptoss_local.talk.history import History
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat
from tui.widgets.chat_list import ChatList


def begun(path: Path, *titles: str) -> None:
    history = History(path)
    for title in titles:
        chat_id = history.new_chat("nano", "medium", title)
        asked = history.add(chat_id, None, "user", f"Tell me of {title}")
        history.add(chat_id, asked.id, "assistant", f"All of\n{title}, [b]briefly")
    history.close()


def listed(chat: Chat) -> ChatList:
    return chat.app.chat.query_one("#sidebar", ChatList)


def marked(chat: Chat) -> str:
    option = listed(chat).highlighted_option
    return "" if option is None else str(option.prompt)


async def test_the_start_page(open_chat: OpenChat, history_path: Path) -> None:
    begun(history_path, "Rivers", "Mountains")
    async with open_chat() as chat:
        await chat.shows("Model    nano, medium effort")
        await chat.shows("Memory ")
        await chat.shows("Rivers")
        await chat.press("f4")
        await chat.shows("nano, high effort")
        await chat.press("alt+e")
        await chat.tells("there is no answer to repeat")
        await chat.press("f2")
        await chat.shows("All of Mountains, [b]briefly")  # a preview
        await chat.press("down")
        await chat.shows("❯ Tell me of Rivers")
        await chat.press("escape")
        recent = chat.app.chat.query_one("#recent", ChatList)
        await chat.pilot.click(recent, offset=(3, 1))
        await chat.shows("❯ Tell me of Rivers")
        assert chat.app.chat.focused is chat.app.chat.prompt
        assert "Model    nano" not in chat.screen()


async def test_a_wide_screen_lists_the_chats(open_chat: OpenChat, history_path: Path) -> None:
    begun(history_path, "Rivers")
    async with open_chat(size=(130, 30)) as chat:
        assert not listed(chat).region  # one chat is no list
        assert await chat.ask(FRANCE) == PARIS
        await chat.until(lambda: listed(chat).region.width == 30)
        await chat.until(lambda: marked(chat) == FRANCE)
        await chat.pilot.click(listed(chat), offset=(3, 1))
        await chat.shows("❯ Tell me of Rivers")
        assert chat.app.chat.focused is chat.app.chat.prompt
        for is_shown in (False, True):
            await chat.press("ctrl+b")
            await chat.until(lambda is_shown=is_shown: bool(listed(chat).region) == is_shown)
        await chat.pilot.resize_terminal(119, 30)
        await chat.until(lambda: not listed(chat).region)


async def test_notices_cover_nothing(open_chat: OpenChat) -> None:
    async with open_chat(notifications=True) as chat:
        await chat.ask(FRANCE)
        await chat.enter("/zz")
        await chat.shows("there is no command /zz")
        toast = chat.app.chat.query_one("Toast", Static).region
        others = (chat.app.chat.transcript.region, chat.app.chat.prompt.region)
        assert not any(toast.overlaps(other) for other in others)
        assert PARIS in chat.screen()
        assert chat.app.chat.transcript.region.bottom <= toast.y < chat.app.chat.prompt.region.y
