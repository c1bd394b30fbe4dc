"""An answer that was cut goes on from where it was, and stays one turn."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import was_cut
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import History, Turn, TurnState
from tests.conftest import PATIENCE_S, RunningServer
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.tui.documents import BLOCKS
from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat, opener
from tests.tui.test_answer_screen import missing
from tests.tui.test_tools import weather

TEXT = "\n\n".join(BLOCKS.values())
REASONING = "First I look at every block, then I write them one after the other. " * 3
QUESTION = "Everything"


def test_the_energy_of_an_answer_is_that_of_both_parts() -> None:
    stats = {"eval_count": 5, "joules": {"gpu0": 2.0, "cpu0": 1.0}}
    begun = Turn(id=1, chat_id=1, parent_id=None, role="assistant", content="a", created_s=0)
    for earlier, joules in ((stats, {"gpu0": 5.0}), ({"eval_count": 5}, {})):
        grown = Answer(begun=msgspec.structs.replace(begun, stats=earlier))
        frame = {"message": {}, "done": True, "eval_count": 7, "joules": {"gpu0": 3.0}}
        for event in events_of(frame):
            grown.add(event)
        assert grown.stats.get("joules") == joules
        assert grown.stats["eval_count"] == 12


@pytest.fixture(scope="module")
def scripted_server(nano_home: Path, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    script = Script(vocabulary)
    script.say(QUESTION, answer(TEXT, REASONING, tok_s=2000, n_per_frame=3))
    script.say("Die", answer(TEXT, dies_at=60, tok_s=2000))
    script.say("Fail", answer(TEXT, fails_at=30, tok_s=2000))
    script.say(
        "Weather?",
        calls("get_current_weather", {"location": "Paris"}, "I look it up."),
        answer("It is sunny in Paris, and it stays so until the evening.", "Now I know."),
    )
    script.say("Slow", answer("one two " + "three " * 400, tok_s=20))
    thought = " ".join(f"thought{n}" for n in range(300))
    script.say("Think", answer("So.", thought, tok_s=20))
    script.say("Wait", answer("One two three four.", prefill_s=1.5))
    with run_scripted_server(nano_home, script) as server:
        yield server


def rows(chat: Chat) -> list[str]:
    """What is on the screen between the label of the reasoning and the input."""
    found = chat.screen().split("\n")
    first = next(n for n, row in enumerate(found) if "reasoned" in row)
    last = next(n for n, row in enumerate(found) if n > first and row.startswith("╭"))
    return found[first + 1 : last]


async def enter_and_stop(chat: Chat, typed: str, n_characters: int) -> str:
    """Stop the answer after so many characters.

    nano is done before the screen has settled, which the keys of a test wait for.
    """
    entering = asyncio.create_task(chat.enter(typed))
    async with asyncio.timeout(PATIENCE_S):
        while (answer := chat.app.chat.dialogue.answer) is None or not answer.is_live:
            await asyncio.sleep(0.001)
        while len(answer.content) < n_characters:
            await asyncio.sleep(0.001)
    chat.app.chat.dialogue.stop()
    await entering
    return await chat.answered()


async def test_piece_by_piece_it_is_the_whole(
    scripted_server: RunningServer, tmp_path: Path
) -> None:
    """Cut by its length, in its reasoning and in every kind of block."""
    size = (100, 400)
    async with opener(scripted_server, tmp_path / "a")(size=size) as chat:
        assert await chat.ask(QUESTION) == TEXT
        await chat.pilot.pause(0.3)
        whole, stats = rows(chat), chat.turns()[-1].stats
        assert missing(TEXT, whole) == Counter()
    async with opener(scripted_server, tmp_path / "b")(size=size) as chat:
        await chat.enter("/set num_predict 20")
        await chat.ask(QUESTION)
        n_parts = 1
        assert chat.turns()[-1].content == ""
        await chat.shows("✂ reached its length limit  /continue resumes it")
        while chat.turns()[-1].stats["done_reason"] == "length":
            if n_parts == 4:
                await chat.enter("/set num_predict 90")
            await chat.enter("/continue")
            await chat.answered()
            n_parts += 1
            assert n_parts < 40
        assert n_parts > 10
        [_, turn] = chat.turns()
        assert (turn.reasoning, turn.content, turn.state) == (REASONING, TEXT, "done")
        assert "✂" not in chat.screen()
        await chat.until(lambda: rows(chat) == whole)
        assert turn.stats["eval_count"] == stats["eval_count"]
        assert turn.stats["prompt_eval_count"] == stats["prompt_eval_count"]
        await chat.enter("/continue")
        assert "this answer was not cut" in chat.notices()
    async with opener(scripted_server, tmp_path / "b")(1, size=size) as chat:
        await chat.until(lambda: rows(chat) == whole)


async def test_stopped_on_the_real_model(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.enter("/effort low")
        part = await enter_and_stop(chat, "Count from 1 to 100.", 9)
        await chat.shows("■ stopped  /continue resumes it")
        longer = await enter_and_stop(chat, "/continue", len(part) + 9)
        assert longer.startswith(part)
        chat.views()[-1].focus()
        await chat.press("g")
        await chat.until(lambda: chat.turns()[-1].state == "done")
        await chat.answered()
        numbers = ", ".join(str(n + 1) for n in range(100))
        assert chat.turns()[-1].content == f"{numbers}"
        assert len(chat.turns()) == 2
        assert "stopped" not in chat.screen()
        await chat.enter("/effort medium")
        assert await chat.ask(FRANCE) == PARIS
        assert "/continue" not in chat.screen()


@pytest.mark.parametrize("question", ["Die", "Fail"])
async def test_after_a_failure(
    scripted_server: RunningServer, tmp_path: Path, question: str
) -> None:
    async with opener(scripted_server, tmp_path / "c")(size=(120, 40)) as chat:
        part = await chat.ask(question)
        assert TEXT.startswith(part)
        assert part
        await chat.shows("✗ failed", "/continue resumes it")
        await chat.enter("/continue")
        assert await chat.answered() == TEXT
        assert "failed" not in chat.screen()


async def test_after_the_chat_was_killed(scripted_server: RunningServer, tmp_path: Path) -> None:
    history = History(tmp_path / "c")
    asked = history.add(history.new_chat("nano", "medium"), None, "user", QUESTION)
    part = TEXT[: TEXT.index(" is *Paris")]
    history.add(1, asked.id, "assistant", part, reasoning=REASONING, state="streaming")
    history.close()
    async with opener(scripted_server, tmp_path / "c")(1) as chat:
        await chat.shows("■ stopped  /continue resumes it")
        await chat.enter("/continue")
        assert await chat.answered() == TEXT
        assert len(chat.turns()) == 2


async def test_after_a_tool(scripted_server: RunningServer, tmp_path: Path) -> None:
    """The tool loop is still running, so the call and its result are in the prompt."""
    async with opener(scripted_server, tmp_path / "c")(tools=weather(tmp_path / "log")) as chat:
        chat.app.chat.parts.toolbox.trusted.add("get_current_weather")
        await chat.enter("/set num_predict 40")
        await chat.enter("Weather?")
        await chat.until(lambda: len(chat.turns()) == 4)
        await chat.enter("/set num_predict 12")
        await chat.answered()
        await chat.enter("/retry")
        await chat.answered()
        while chat.turns()[-1].stats["done_reason"] == "length":
            await chat.enter("/continue")
            await chat.answered()
        assert chat.turns()[-1].content.startswith("It is sunny in Paris, and")
        assert chat.turns()[-1].content.endswith("until the evening.")
        assert len(chat.turns()) == 4


async def test_figures_of_the_part_before(own_server: RunningServer, tmp_path: Path) -> None:
    """They stay until the rest is there, also where the server ends."""
    async with opener(own_server, tmp_path / "c")() as chat:
        await chat.enter("/set num_predict 20")
        await chat.ask("Count from 1 to 900.")
        before = chat.turns()[-1].stats
        await chat.shows("/continue resumes it")
        await chat.enter("/set num_predict 2000")
        await chat.enter("/continue")
        await chat.shows("20, 21")
        assert "/continue resumes it" not in chat.screen()
        await chat.press("escape")
        part = await chat.answered()
        stopped = chat.turns()[-1].stats
        assert stopped["eval_count"] == before["eval_count"]
        assert not {"tokens", "done_reason"} & stopped.keys()
        await chat.enter("/continue")
        await chat.until(lambda: len(chat.app.chat.dialogue.answer.content) > len(part))
        own_server.process.kill()
        assert (await chat.answered()).startswith(part)
        await chat.shows("✗ failed")
        await chat.enter("/continue")
        await chat.answered()
        failed = dict(chat.turns()[-1].stats)
        assert "no server answers" in failed.pop("error")
        assert failed == stopped


@pytest.mark.parametrize(
    ("state", "reason", "is_cut"),
    [("done", "length", True), ("done", "stop", False), ("streaming", "length", False)],
)
def test_what_was_cut(history: History, state: TurnState, reason: str, is_cut: bool) -> None:
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "assistant", "x", state=state, stats={"done_reason": reason})
    assert was_cut(turn) == is_cut


async def test_what_cannot_be_continued(scripted_server: RunningServer, tmp_path: Path) -> None:
    async with opener(scripted_server, tmp_path / "c")() as chat:
        await chat.enter("/continue")
        assert "there is no answer to continue" in chat.notices()
        await chat.enter("Slow")
        await chat.shows("one two")
        await chat.enter("/continue")
        assert "An answer streams" in chat.notices()
        await chat.press("escape")
        await chat.answered()
        await chat.enter("Slow")
        await chat.press("escape")
        await chat.answered()
        chat.views()[1].focus()
        await chat.press("g")
        assert "only the last answer can be continued" in chat.notices()
        assert len(chat.turns()) == 4


@pytest.mark.parametrize("how", ["f6", "/now"])
async def test_the_answer_comes_now(
    scripted_server: RunningServer, tmp_path: Path, how: str
) -> None:
    async with opener(scripted_server, tmp_path / "c")() as chat:
        await chat.enter("Think")
        await chat.shows("thought3")
        await (chat.press("f6") if how == "f6" else chat.enter(how))
        await chat.until(lambda: not chat.app.chat.is_answering)
        assert chat.turns()[-1].content == "So."
        assert "thought299" not in chat.turns()[-1].reasoning
        await chat.press("f6")
        await chat.tells("the model is not thinking now")


async def test_silence(scripted_server: RunningServer, tmp_path: Path) -> None:
    async with opener(scripted_server, tmp_path / "c")() as chat:
        await chat.enter("Wait")
        await chat.shows("reading")
        await chat.shows("One")
        assert await chat.answered() == "One two three four."
