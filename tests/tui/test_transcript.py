"""Long chats: what is shown when they are opened, at their end or at a place of them."""

from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer


def long_chat(path: Path, n_questions: int = 60) -> int:
    """A chat of questions and answers; returns its id."""
    history = History(path)
    chat_id = history.new_chat("nano", "medium")
    parent_id = None
    for n in range(n_questions):
        parent_id = history.add(chat_id, parent_id, "user", f"question-{n:02}").id
        parent_id = history.add(
            chat_id, parent_id, "assistant", "- row\n" * 30 + f"\nanswer-{n:02}"
        ).id
    history.close()
    return chat_id


def server() -> ScriptedServer:
    return ScriptedServer("hello", [], 1)


async def open_hit(chat: Chat) -> None:
    await chat.enter("/search question-52")
    await chat.shows("question-52")
    await chat.press("enter")
    await chat.shows("❯ question-52")


async def test_a_search_opens_at_the_hit(history_path: Path) -> None:
    long_chat(history_path)
    async with run_chat(server(), history_path) as chat:
        await open_hit(chat)
        await chat.press("pageup")
        await chat.until(lambda: "• row" in chat.screen().split("❯ question-52")[0])
        for _ in range(30):
            await chat.press("pagedown")
        await chat.shows("answer-59")
        assert await chat.ask("and then?") == "hello"
        await chat.shows("❯ and then?", "answer-59")
        assert chat.views()[-1].turn.id == chat.turns()[-1].id


async def test_a_list_that_is_cut_says_so(history_path: Path) -> None:
    history = History(history_path)
    for n in range(301):
        history.new_chat("nano", "medium", f"chat-{n:03}")
    history.close()
    async with run_chat(server(), history_path) as chat:
        await chat.press("f2")
        await chat.shows("chat-300")
        await chat.shows("the first 300; words find older ones")
        await chat.press("up")  # from the first to the last
        await chat.shows("chat-001")
        await chat.press(*"chat-000")
        await chat.until(lambda: "chat-000" in chat.screen() and "chat-001" not in chat.screen())


async def test_another_version_of_an_early_message_is_shown(history_path: Path) -> None:
    chat_id = long_chat(history_path)
    async with run_chat(server(), history_path, chat_id) as chat:
        await chat.enter("/edit 50")  # of 60
        await chat.type("-again")
        await chat.press("enter")
        await chat.answered()
        await chat.press("alt+left")
        await chat.shows("❯ question-10")
        await chat.press("alt+right")
        await chat.shows("question-10-again")


@pytest.mark.quick
async def test_questions_ends_and_words_are_found(history_path: Path) -> None:
    chat_id = long_chat(history_path)
    async with run_chat(server(), history_path, chat_id) as chat:

        async def goes(key: str, shown: str) -> None:
            await chat.press(key)
            await chat.until(lambda: shown in chat.screen())

        await chat.shows("answer-59")
        await goes("alt+up", "question-59")
        for n in range(58, 48, -1):
            await goes("alt+up", f"question-{n}")
        await goes("alt+down", "question-50")
        await goes("alt+home", "question-00")
        await goes("alt+down", "question-01")
        await goes("alt+end", "answer-59")
        await chat.press("ctrl+f", *"Answer-1", "enter")
        await chat.shows("answer-19")
        assert "10 of 10" in chat.notices()
        await chat.press("ctrl+f", "enter")
        await chat.shows("answer-18")
        await chat.enter("/find nowhere")
        assert "'nowhere' is not in this chat" in chat.notices()


async def test_messages_are_searched_in_all_chats(history_path: Path) -> None:
    long_chat(history_path)
    async with run_chat(server(), history_path) as chat:
        await chat.press("ctrl+r")
        await chat.shows("question-59")
        await chat.press(*"30 quest", "enter")
        await chat.until(lambda: chat.app.chat.prompt.text == "question-30")
