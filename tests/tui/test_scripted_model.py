"""The chat with a model that writes as real ones do, through a real server: nothing is lost."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer
from tests.scripted_engine import Script, answer, calls, run_scripted_server
from tests.tui.documents import BLOCKS, at_random
from tests.tui.running_chat import Chat, opener
from tests.tui.test_answer_screen import missing
from tests.tui.test_tools import weather

PROSE = "".join(
    f"Sentence {n} of some words, and **one more** of them, in a paragraph.\n\n" for n in range(280)
)  # 20 kB
EVERYTHING = "\n\n".join(BLOCKS.values())
MIXED = at_random(random.Random(36), 12).replace("\r", "")
ANSWERS = {"Everything": EVERYTHING, "Prose": PROSE, "Mixed": MIXED}
REASONING = "Let me think:\n1. it rains\n2. `so` 日本語 🎉\n"


@pytest.fixture(scope="module")
def scripted_server(nano_home: Path, vocabulary: Vocabulary) -> Iterator[RunningServer]:
    script = Script(vocabulary)
    for question, text in ANSWERS.items():
        script.say(question, answer(text, REASONING, tok_s=1000, n_per_frame=3))
    thought = " ".join(f"thought{n}" for n in range(300))
    script.say("Think", answer("So.", thought, tok_s=60))
    script.say("Weather?", calls("get_current_weather", {"location": "Paris"}), answer("Sunny."))
    script.say("Fail", answer("Some words, then nothing.", fails_at=5))
    script.say("Die", answer("Some words, then nothing.", dies_at=5))
    script.say("Wait", answer("One two three four.", pauses={4: 1.0}, prefill_s=0.5))
    script.otherwise(answer("Hello!"))
    with run_scripted_server(nano_home, script) as server:
        yield server


@pytest.mark.parametrize("question", ANSWERS)
async def test_streamed_and_opened_again(
    scripted_server: RunningServer, history_path: Path, question: str
) -> None:
    text = ANSWERS[question]
    open_chat = opener(scripted_server, history_path)
    size = (80, 1400)
    async with open_chat(size=size) as chat:
        assert await chat.ask(question) == text
        assert chat.turns()[-1].reasoning == REASONING
        await chat.pilot.pause()
        streamed = rows_of_answer(chat)
        assert missing(text, streamed) == Counter()
        chat_id = chat.app.chat.conversation.chat_id
    async with open_chat(chat_id, size=size) as chat:
        await chat.pilot.pause(0.2)
        assert rows_of_answer(chat) == streamed


def rows_of_answer(chat: Chat) -> list[str]:
    rows = chat.screen().split("\n")
    first = next(n for n, row in enumerate(rows) if "▸ reasoned" in row)
    last = next(n for n, row in enumerate(rows) if row.startswith("╭"))
    return [row.rstrip(" ▁▂▃▄▅▆▇█") for row in rows[first + 1 : last]]


async def test_a_call_of_a_tool(
    scripted_server: RunningServer, history_path: Path, tmp_path: Path
) -> None:
    open_chat = opener(scripted_server, history_path)
    async with open_chat(tools=weather(tmp_path / "log")) as chat:
        await chat.enter("Weather?")
        await chat.answer("Allow once")
        await chat.until(lambda: not chat.app.chat.is_answering)
        assert [turn.role for turn in chat.turns()] == ["user", "assistant", "tool", "assistant"]
        assert chat.turns()[-1].content == "Sunny."


@pytest.mark.parametrize("how", ["f6", "/now"])
async def test_the_answer_comes_now(
    scripted_server: RunningServer, history_path: Path, how: str
) -> None:
    async with opener(scripted_server, history_path)() as chat:
        await chat.enter("Think")
        await chat.until(lambda: "thought3" in chat.screen())
        if how == "f6":
            await chat.press("f6")
        else:
            await chat.enter(how)
        await chat.until(lambda: not chat.app.chat.is_answering)
        assert chat.turns()[-1].content == "So."
        assert "thought299" not in chat.turns()[-1].reasoning
        await chat.press("f6")
        await chat.until(lambda: "the model is not thinking now" in chat.notices())


async def test_silence_and_faults(scripted_server: RunningServer, history_path: Path) -> None:
    async with opener(scripted_server, history_path)() as chat:
        await chat.enter("Wait")
        await chat.until(lambda: "reading" in chat.screen())
        await chat.until(lambda: "One" in chat.screen())
        assert "four" not in chat.screen()
        assert await chat.answered() == "One two three four."
        for question in ("Fail", "Die"):
            assert (await chat.ask(question)).startswith("Some")
            assert chat.turns()[-1].state == "failed"
        assert await chat.ask("And now?") == "Hello!"
