"""An answer that was cut continues from where it was; a prompt that does not fit is made to."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.errors import ContextOverflowError
from gptoss_local.harmony import Vocabulary
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import was_cut
from gptoss_local.talk.history import History, Turn
from tests.conftest import RunningServer, run_server
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.tui.documents import BLOCKS
from tests.tui.running_chat import Chat, OpenChat, opener
from tests.tui.scripted import chat_frame
from tests.tui.test_answer_screen import missing
from tests.tui.test_tools import weather
from tui.conversation import Conversation
from tui.exchange import larger_context

TEXT = "\n\n".join(BLOCKS.values())
REASONING = "First I look at every block, then I write them one after the other. " * 3
QUESTION = "Everything"
LONG = "Repeat: " + "word " * 400
SUMMARY = "Summary of the conversation before this point:"


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
    with run_scripted_server(nano_home, script) as server:
        yield server


@pytest.fixture
def open_scripted(scripted_server: RunningServer, history_path: Path) -> OpenChat:
    return opener(scripted_server, history_path)


def rows(chat: Chat) -> list[str]:
    """The text on the screen between the label of the reasoning and the input."""
    found = chat.screen().split("\n")
    first = next(n for n, row in enumerate(found) if "reasoned" in row)
    last = next(n for n, row in enumerate(found) if n > first and row.startswith("╭"))
    return found[first + 1 : last]


async def test_piece_by_piece_it_is_the_whole(
    scripted_server: RunningServer, tmp_path: Path
) -> None:
    """Cut by its length, in its reasoning and in every kind of block."""
    size = (100, 400)
    async with opener(scripted_server, tmp_path / "a")(size=size) as chat:
        assert await chat.ask(QUESTION) == TEXT
        await chat.until(lambda: missing(TEXT, rows(chat)) == Counter())
        whole, stats = rows(chat), chat.turns()[-1].stats
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
        assert 10 < n_parts < 40
        [_, turn] = chat.turns()
        assert (turn.reasoning, turn.content, turn.state) == (REASONING, TEXT, "done")
        assert "✂" not in chat.screen()
        await chat.until(lambda: rows(chat) == whole)
        assert turn.stats["eval_count"] == stats["eval_count"]
        assert turn.stats["prompt_eval_count"] == stats["prompt_eval_count"]
        await chat.enter("/continue")
        assert "this answer was not cut" in chat.notices()


@pytest.mark.parametrize("question", ["Die", "Fail", "killed"])
async def test_after_a_failure(open_scripted: OpenChat, history_path: Path, question: str) -> None:
    """Of the engine or of an answer, or after the chat itself was killed."""
    if is_killed := question == "killed":
        history = History(history_path)
        asked = history.add(history.new_chat("nano", "medium"), None, "user", QUESTION)
        part = TEXT[: TEXT.index(" is *Paris")]
        history.add(1, asked.id, "assistant", part, reasoning=REASONING, state="streaming")
        history.close()
    async with open_scripted(1 if is_killed else None, size=(120, 40)) as chat:
        if not is_killed:
            part = await chat.ask(question)
            assert part
            assert TEXT.startswith(part)
        await chat.shows("■ stopped" if is_killed else "✗ failed", "/continue resumes it")
        await chat.enter("/continue")
        assert await chat.answered() == TEXT
        assert "failed" not in chat.screen()
        assert len(chat.turns()) == 2


async def test_after_a_tool(open_scripted: OpenChat, tmp_path: Path) -> None:
    """The tool loop is still running, so the call and its result are in the prompt."""
    async with open_scripted(tools=weather(tmp_path / "log")) as chat:
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
        whole = "It is sunny in Paris, and it stays so until the evening."
        assert chat.turns()[-1].content == whole
        assert len(chat.turns()) == 4


def test_figures_of_an_answer_are_those_of_both_parts() -> None:
    stats = {"eval_count": 5, "joules": {"gpu0": 2.0, "cpu0": 1.0}}
    begun = Turn(id=1, chat_id=1, parent_id=None, role="assistant", content="a", created_s=0)
    for earlier, joules in ((stats, {"gpu0": 5.0}), ({"eval_count": 5}, {})):
        grown = Answer(begun=msgspec.structs.replace(begun, stats=earlier))
        frame = chat_frame(done=True, eval_count=7, joules={"gpu0": 3.0})
        for event in frame.events():
            grown.add(event)
        assert grown.stats.get("joules") == joules
        assert grown.stats["eval_count"] == 12
    cases = (("done", "length", True), ("done", "stop", False), ("streaming", "length", False))
    for state, reason, is_cut in cases:
        turn = msgspec.structs.replace(begun, state=state, stats={"done_reason": reason})
        assert was_cut(turn) == is_cut


async def test_figures_of_the_part_before_stay(open_scripted: OpenChat) -> None:
    """Until the rest is there."""
    async with open_scripted() as chat:
        await chat.enter("/continue")
        assert "there is no answer to continue" in chat.notices()
        await chat.enter("/set num_predict 10")
        await chat.ask("Slow")
        before = chat.turns()[-1].stats
        await chat.enter("/set num_predict 2000")
        await chat.enter("/continue")
        live = chat.app.chat
        await chat.until(lambda: live.answer and live.answer.content.count("three") > 12)
        await chat.enter("/continue")
        assert "An answer streams" in chat.notices()
        assert "/continue resumes it" not in chat.screen()
        await chat.press("escape")
        await chat.answered()
        stopped = chat.turns()[-1].stats
        assert stopped["eval_count"] == before["eval_count"]
        assert not {"tokens", "done_reason"} & stopped.keys()
        await chat.ask("Fail")
        chat.views()[1].focus()
        await chat.press("g")
        assert "only the last answer can be continued" in chat.notices()
        assert len(chat.turns()) == 4


async def test_the_answer_comes_now(open_scripted: OpenChat) -> None:
    async with open_scripted() as chat:
        for keys in (["f6"], [*"/now", "enter"]):
            await chat.enter("Think")
            await chat.shows("thought3")
            await chat.press(*keys)
            assert await chat.answered() == "So."
            assert "thought299" not in chat.turns()[-1].reasoning
            await chat.enter("/new")
        await chat.press("f6")
        await chat.tells("the model is not thinking now")


@pytest.fixture(scope="module")
def small_server(nano_home: Path) -> Iterator[RunningServer]:
    with run_server(nano_home, context_length="1024") as running:
        yield running


async def fill_up(chat: Chat) -> None:
    """Talk until the chat asks what to do."""
    await chat.enter("/set num_predict 20")
    await chat.ask(LONG)
    await chat.ask(LONG)
    await chat.enter(LONG)
    await chat.shows("The conversation does not fit")


async def test_the_oldest_turns_are_left_out(
    small_server: RunningServer, history_path: Path
) -> None:
    async with opener(small_server, history_path)() as chat:
        await fill_up(chat)
        assert re.search(r"It has 1,[23]\d\d tokens and the context holds 1,024", chat.screen())
        await chat.press("enter")
        await chat.answered()
        assert chat.turns()[-1].state == "done"
        assert chat.app.chat.conversation.options["truncate"] is True
        await chat.shows("without the oldest")


async def test_a_summary_takes_the_place_of_the_turns(
    small_server: RunningServer, history_path: Path
) -> None:
    """Or else they stay, if it is stopped."""
    async with opener(small_server, history_path)() as chat:
        await fill_up(chat)
        with small_server.engine_suspended():
            await chat.press("down", "enter")
            await chat.shows("summarising")
            await chat.press("escape")
            await chat.until(lambda: chat.app.chat.prompt.text == LONG.strip())
        assert [turn.role for turn in chat.turns()] == ["user", "assistant"] * 3
        first = chat.turns()[0]
        await chat.press("enter")
        await chat.shows("The conversation does not fit")
        await chat.press("down", "enter")
        await chat.until(lambda: chat.turns()[0].role == "system")
        await chat.answered()
        system, asked, answer = chat.turns()
        assert system.content.startswith(f"{SUMMARY}\n\n")
        assert system.content.removeprefix(SUMMARY).strip()
        assert (asked.content, answer.state) == (LONG.strip(), "done")
        assert 0 < answer.stats["eval_count"] <= 20
        await chat.app.chat.walk(system, -1)  # the long branch is still there
        assert chat.turns()[0] == first


async def test_a_larger_context_holds_the_part(
    small_server: RunningServer, history_path: Path
) -> None:
    history = History(history_path)
    chat_id = history.new_chat("nano", "medium")
    asked = history.add(chat_id, None, "user", "Repeat.")
    history.add(chat_id, asked.id, "assistant", "word " * 1100, state="stopped")
    history.close()
    async with opener(small_server, history_path)(chat_id) as chat:
        await chat.enter("/set num_predict 5")
        await chat.enter("/continue")
        await chat.shows("The conversation does not fit", "with 8,192 tokens of context")
        found = re.search(r"It has (\S+) tokens", chat.screen())
        await chat.press("enter")
        await chat.answered()
        assert chat.turns()[-1].state == "done"
        assert found
        assert f"{chat.turns()[-1].stats['prompt_eval_count']:,}" == found[1]
        await chat.shows("/8,192")
        assert chat.app.chat.conversation.options["num_ctx"] == 8192


@pytest.mark.parametrize(
    ("n_prompt", "n_ctx", "larger"),
    [(1300, 1024, 8192), (40_000, 32_768, 57_344), (130_000, 32_768, 131_072),
     (140_000, 131_072, 0)],
)  # fmt: skip
def test_larger_context(n_prompt: int, n_ctx: int, larger: int) -> None:
    error = ContextOverflowError("", n_prompt=n_prompt, n_ctx=n_ctx, n_ctx_max=131_072)
    assert larger_context(error) == larger


def test_a_summary_replaces_the_one_before(history: History) -> None:
    conversation = Conversation(history, "nano", "low")
    conversation.new("Be brief.")
    for k in range(2):
        conversation.ask(f"first {k}")
        history.update(conversation.begin_answer().id, content="Yes.", state="done")
        asked = conversation.ask(f"second {k}")
        conversation.go_on_with(f"summary {k}")
        system, question, answer = conversation.turns
        assert system.content == f"Be brief.\n\n{SUMMARY}\n\nsummary {k}"
        assert (question.content, answer.state) == (asked.content, "streaming")
        history.update(answer.id, content="Yes.", state="done")
    assert [turn.role for turn in conversation.turns] == ["system", "user", "assistant"]
