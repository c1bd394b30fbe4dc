"""The context guard: a prompt does not fit, on a server with a small context."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.talk.history import History
from tests.conftest import RunningServer, run_server
from tests.tui.running_chat import Chat, OpenChat, opener
from tui.conversation import Conversation
from tui.exchange import larger_context


@pytest.fixture(scope="module")
def small_server(nano_home: Path) -> Iterator[RunningServer]:
    with run_server(nano_home, context_length="1024") as running:
        yield running


@pytest.fixture
def open_small(small_server: RunningServer, history_path: Path) -> OpenChat:
    return opener(small_server, history_path)


LONG = "Repeat: " + "word " * 400


async def fill_up(chat: Chat) -> None:
    """Talk until the guard asks what to do."""
    await chat.enter("/set num_predict 20")
    await chat.ask(LONG)
    await chat.ask(LONG)
    await chat.enter(LONG)
    await chat.shows("The conversation does not fit")


async def test_the_guard_drops_the_oldest_turns(open_small: OpenChat) -> None:
    async with open_small() as chat:
        await fill_up(chat)
        assert re.search(r"It has 1,[23]\d\d tokens and the context holds 1,024", chat.screen())
        await chat.press("enter")
        await chat.answered()
        assert chat.turns()[-1].state == "done"
        assert chat.app.chat.conversation.options["truncate"] is True
        answer = chat.app.chat.answer
        assert answer is not None
        assert answer.n_left_out > 0
        await chat.shows("without the oldest")


async def test_a_larger_context_holds_the_part(nano_home: Path, history_path: Path) -> None:
    history = History(history_path)
    chat_id = history.new_chat("nano", "medium")
    asked = history.add(chat_id, None, "user", "Repeat.")
    history.add(chat_id, asked.id, "assistant", "word " * 1100, state="stopped")
    history.close()
    with run_server(nano_home, context_length="1024") as server:  # its model is loaded anew
        async with opener(server, history_path)(chat_id) as chat:
            await chat.enter("/set num_predict 5")
            await chat.enter("/continue")
            await chat.shows("The conversation does not fit")
            await chat.shows("with 8,192 tokens of context")
            found = re.search(r"It has (\S+) tokens", chat.screen())
            assert found
            await chat.press("enter")
            await chat.answered()
            assert chat.turns()[-1].state == "done"
            assert f"{chat.turns()[-1].stats['prompt_eval_count']:,}" == found[1]
            await chat.shows("/8,192")
            assert chat.app.chat.conversation.options["num_ctx"] == 8192


def test_larger_context() -> None:
    def larger(n_prompt: int, n_ctx: int) -> int:
        error = ContextOverflowError("", n_prompt=n_prompt, n_ctx=n_ctx, n_ctx_max=131_072)
        return larger_context(error)

    assert larger(1300, 1024) == 8192
    assert larger(40_000, 32_768) == 57_344
    assert larger(130_000, 32_768) == 131_072
    assert larger(140_000, 131_072) == 0


async def test_the_guard_goes_on_with_a_summary(open_small: OpenChat) -> None:
    async with open_small() as chat:
        await fill_up(chat)
        first = chat.turns()[0]
        await chat.press("down", "enter")
        await chat.until(lambda: chat.turns()[0].role == "system")
        await chat.answered()
        system, asked, answer = chat.turns()
        assert system.content.startswith("Summary of the conversation before this point:\n\n")
        assert system.content.partition("point:")[2].strip()
        assert asked.content == LONG.strip()
        assert answer.state == "done"
        assert 0 < answer.stats["eval_count"] <= 20
        assert chat.app.chat.conversation.place(system.id) == (2, 2)
        await chat.app.chat.walk(system, -1)  # the long branch is still there
        assert chat.turns()[0] == first
        assert len(chat.turns()) == 6


async def test_a_summary_can_be_stopped(open_small: OpenChat, small_server: RunningServer) -> None:
    async with open_small() as chat:
        await fill_up(chat)
        with small_server.engine_suspended():
            await chat.press("down", "enter")
            await chat.shows("summarising")
            await chat.press("escape")
            await chat.until(lambda: chat.app.chat.prompt.text == LONG.strip())
        assert [turn.role for turn in chat.turns()] == ["user", "assistant"] * 3


def test_a_summary_replaces_the_one_before(history: History) -> None:
    conversation = Conversation(history, "nano", "low")
    conversation.new("Be brief.")
    for k in range(2):
        conversation.ask(f"first {k}")
        history.update(conversation.begin_answer().id, content="Yes.", state="done")
        asked = conversation.ask(f"second {k}")
        conversation.go_on_with(f"summary {k}")
        system, question, answer = conversation.turns
        heading = "Summary of the conversation before this point:"
        assert system.content == f"Be brief.\n\n{heading}\n\nsummary {k}"
        assert (question.content, answer.state) == (asked.content, "streaming")
        history.update(answer.id, content="Yes.", state="done")
    assert [turn.role for turn in conversation.turns] == ["system", "user", "assistant"]
