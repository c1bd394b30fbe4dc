"""Other chats, models and tools while an answer streams: it goes on in its own chat."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.history import History
from gptoss_local.talk.tools import Arguments
from tests.conftest import RunningServer
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.tools.own_source import OwnSource, toolbox_of
from tests.tui.running_chat import Chat, OpenChat, opener, run_chat
from tests.tui.test_tool_chats import Model, call, finds
from tests.tui.wire import answer_of, installed

SLOW, QUICK = "Count slowly", "Be quick"
NUMBERS = ", ".join(map(str, range(1, 61)))


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say("Count", answer(NUMBERS, tok_s=40, holds_at=30))
    script.say(SLOW, answer(NUMBERS, tok_s=40, holds_at=30))
    script.say("Count on", answer(NUMBERS, tok_s=40, holds_at=30))
    script.say(QUICK, answer("Here I am."))
    return script


@pytest.fixture(scope="module")
def scripted_server(nano_home: Path, script: Script) -> Iterator[RunningServer]:
    with run_scripted_server(nano_home, script) as server:
        yield server


@pytest.fixture
def open_scripted(scripted_server: RunningServer, history_path: Path) -> OpenChat:
    return opener(scripted_server, history_path)


def stored(path: Path, chat_id: int) -> Any:
    """The last turn of a chat, as another process sees it."""
    history = History(path)
    turn = history.branch(history.chat(chat_id).leaf_id)[-1]
    history.close()
    return turn


async def open_other(chat: Chat, title: str) -> None:
    """Open a chat from the list of chats."""
    await chat.press("f2", *title)
    await chat.shows(title)
    await chat.pilot.pause(0.3)  # the search waits for more letters
    await chat.press("enter")
    await chat.shows(f"❯ {title}")


async def test_an_answer_goes_on_in_its_own_chat(
    open_scripted: OpenChat, script: Script, history_path: Path
) -> None:
    async with open_scripted() as chat:
        await chat.enter("Count")
        await chat.shows("5, 6, 7")
        await chat.press("ctrl+n")
        assert "5, 6, 7" not in chat.screen()
        assert await chat.ask(QUICK) == "Here I am."
        assert stored(history_path, 1).state == "streaming"
        await open_other(chat, "Count")
        assert chat.app.chat.is_answering
        shown = chat.screen()
        script.go_on()
        await chat.until(lambda: chat.screen() != shown)
        assert "Here I am." not in chat.screen()
        assert await chat.answered() == NUMBERS
        await chat.shows("58, 59,")
        assert await chat.ask(QUICK) == "Here I am."
        assert [turn.content for turn in chat.turns()] == ["Count", NUMBERS, QUICK, "Here I am."]
        assert [turn.chat_id for turn in chat.turns()] == [1] * 4


async def test_out_of_sight_it_is_saved_and_the_next_message_sent(
    open_scripted: OpenChat, script: Script, history_path: Path
) -> None:
    async with open_scripted() as chat:
        await chat.enter(SLOW)
        await chat.shows("5, 6")
        await chat.enter(QUICK)
        await chat.enter("/new")
        assert f"» {QUICK}" not in chat.screen()
        await chat.type("a draft")
        script.go_on()
        await chat.until(lambda: stored(history_path, 1).content == "Here I am.")
        await chat.until(lambda: chat.notices().count(f"“{SLOW}”: has its answer.") == 2)
        assert chat.turns() == []
        assert "a draft" in chat.app.chat.typed
        await chat.until(lambda: len(list(chat.app.chat.rooms)) == 1)
    history = History(history_path)
    turns = history.branch(history.chat(1).leaf_id)
    assert [turn.content for turn in turns] == [SLOW, NUMBERS, QUICK, "Here I am."]
    history.close()


async def test_quitting_and_deleting_while_two_answers_stream(
    open_scripted: OpenChat, history_path: Path
) -> None:
    async with open_scripted() as chat:
        for n in (1, 2, 3):
            await chat.enter("Count on")
            await chat.shows("3, 4")
            assert chat.app.chat.conversation.chat_id == n
            await chat.press("ctrl+n")
        await chat.press("f2", "f8", "y")
        await chat.until(lambda: len(chat.app.chat.parts.history.chats()) == 2)
        await chat.press("escape")
        await chat.enter("/quit")
    for n in (1, 2):
        assert stored(history_path, n).state == "stopped"
        assert "1, 2, 3" in stored(history_path, n).content
    assert "internal" not in chat.notices()


class Two(Model):
    """Has two models."""

    async def get(self, path: str, _answer_type: object) -> Any:
        return answer_of(path, tags=[installed("nano"), installed("other")])


async def test_model_effort_and_tools_apply_from_the_next_message(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def waits(_arguments: Arguments) -> str:
        await may_end.wait()
        return "done"

    slow = OwnSource("slow", "waits", {"slow": waits})
    web = OwnSource("web", "searches", {"web.search": finds}, is_on=False)
    box = toolbox_of(slow, web)
    model = Two([call("slow")], "One.", "Two.")
    async with run_chat(model, tmp_path / "c", make_toolbox=lambda: box) as chat:
        box.trusted.add("slow")
        await chat.enter("go")
        await chat.shows("running slow")
        await chat.enter("/model other")
        await chat.enter("/effort high")
        await chat.enter("/tools web")
        await chat.enter("/tools slow")
        assert "slow is off from your next message on." in chat.notices()
        await chat.enter("/tools")
        await chat.shows("on    web")
        await chat.press("escape")
        may_end.set()
        assert await chat.answered() == "One."
        assert (chat.turns()[-1].model, chat.turns()[-1].effort) == ("nano", "medium")
        assert await chat.ask("again") == "Two."
        assert (chat.turns()[-1].model, chat.turns()[-1].effort) == ("other", "high")
    made_with = [
        (body["model"], body["think"], [tool["function"]["name"] for tool in body["tools"]])
        for body in model.asked
    ]
    before = ("nano", "medium", ["slow"])
    assert made_with == [before, before, ("other", "high", ["web.search"])]


async def test_a_question_waits_for_its_chat(tmp_path: Path) -> None:
    model = Model([call("python", code="1")], "Done.")

    n_runs = 0

    async def runs(_arguments: Arguments) -> str:
        nonlocal n_runs
        n_runs += 1
        return "ran"

    def box() -> Any:
        return toolbox_of(OwnSource("python", "runs code", {"python": runs}))

    async with run_chat(model, tmp_path / "c", make_toolbox=box) as chat:
        await chat.enter("go")
        await chat.asked()
        await chat.press("ctrl+n")
        await chat.tells("“go” waits for you: may it run python?")
        assert not chat.app.chat.question.display
        await chat.press("down", "enter")  # an answer to nothing
        assert n_runs == 0
        await open_other(chat, "go")
        await chat.asked()
        await chat.answer("Allow once")
        assert await chat.answered() == "Done."
        assert n_runs == 1
