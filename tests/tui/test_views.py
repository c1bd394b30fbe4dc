"""What the chat shows beside the conversation, on the real server: speed, harmony, versions."""

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gptoss_local.api.gptoss import GpuMemory
from gptoss_local.api.models import LoadStatus
from gptoss_local.base.events import Prefilling, Started
from gptoss_local.talk.answer import Answer, thinned
from gptoss_local.talk.history import History
from tests.tui.running_chat import FRANCE, PARIS, OpenChat, run_chat
from tests.tui.scripted import ScriptedServer
from tests.tui.wire import answer_of
from tui.screens.compare import CompareDialog
from tui.widgets.speed_panel import SpeedPanel, stats_lines
from tui.widgets.status_line import Status, status_parts


async def test_the_speed_panel(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("f8")
        await chat.shows("No answer is finished yet")
        await chat.ask(FRANCE)
        await chat.until(lambda: re.search(r"answer \d+ tokens in \d\.\d\d s", chat.screen()))
        assert re.search(r"prompt \d+ tokens, \d+ read in .* tok/s\)", chat.screen())
        await chat.shows("between tokens: median")
        assert len(chat.turns()[-1].stats["latencies_ms"]) > 5
        await chat.press("f8")
        await chat.until(lambda: "between tokens" not in chat.screen())
        assert not chat.app.chat.query_one(SpeedPanel).display
        for argument, is_shown in (("on", True), ("on", True), ("off", False)):
            await chat.enter(f"/stats {argument}")
            await chat.until(lambda: chat.app.chat.prompt.text == "")
            assert chat.app.chat.query_one(SpeedPanel).display == is_shown


async def test_the_inspector(open_chat: OpenChat) -> None:
    async with open_chat(size=(120, 60)) as chat:
        await chat.enter("/set temperature 0")
        await chat.ask(FRANCE)
        tokens = chat.turns()[-1].stats["tokens"]
        assert tokens[-1] == 200002  # <|return|>
        assert len(tokens) == chat.turns()[-1].stats["eval_count"]
        await chat.press("f9")
        await chat.shows("assistant · channel final")
        screen = chat.screen()
        assert re.search(r"channel analysis · \d+ tokens · written by the model · dropped", screen)
        assert re.search(r"channel final · \d+ tokens · written by the model\s", screen)
        assert "Reasoning: medium" in screen
        await chat.press("space")
        await chat.shows("200006 173781 200005 17196 200008")
        await chat.press("escape")


async def test_the_same_prompt_with_another_effort(open_chat: OpenChat) -> None:
    async with open_chat(size=(120, 40)) as chat:
        await chat.ask(FRANCE)
        await chat.press("f5")
        assert await chat.answered() == PARIS
        assert chat.turns()[-1].effort == "high"
        await chat.shows("‹ 2/2 ›")
        await chat.enter("/compare")

        def row_of(text: str) -> int:
            rows = chat.screen().splitlines()
            return next((n for n, row in enumerate(rows) if text in row), -1)

        await chat.until(lambda: row_of("1: nano, medium") >= 0)
        await chat.until(lambda: row_of("1: nano") == row_of("2: nano, high"))  # side by side
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: 0 <= row_of("1: nano") < row_of("2: nano"))
        await chat.press("escape")
        assert not isinstance(chat.app.screen, CompareDialog)


async def test_a_branch_is_a_chat_of_its_own(open_chat: OpenChat, history_path: Path) -> None:
    async with open_chat() as chat:
        await chat.ask("My name is Peter Parker.")
        old_id = chat.app.chat.conversation.chat_id
        await chat.ask(FRANCE)
        chat.views()[1].focus()
        await chat.pilot.pause()
        await chat.app.chat.action_command("branch")
        assert len(chat.turns()) == 2
        assert chat.app.chat.conversation.chat_id != old_id
        assert "Peter" in await chat.ask("What is my name?")
    history = History(history_path)
    assert [summary.n_turns for summary in history.chats()] == [4, 4]
    history.close()


async def test_options_stay_with_their_chat(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.enter("/set temperature 0.5")
        await chat.tells("temperature 0.5")
        await chat.enter("/set seed 7")
        for wrong in ("/set heat 3", "/set temperature 9", "/set seed 1.5"):
            await chat.enter(wrong)
        await chat.tells("there is no option 'heat'")
        assert "temperature is a number from 0 to 2" in chat.notices()
        assert "seed is a whole number" in chat.notices()
        await chat.ask(FRANCE)
        chat_id = chat.app.chat.conversation.chat_id
        await chat.enter("/new")
        assert chat.app.chat.conversation.options == {}
    async with open_chat(chat_id) as chat:
        assert chat.app.chat.conversation.options == {"temperature": 0.5, "seed": 7}
        assert chat.app.chat.conversation.request()["options"] == {"temperature": 0.5, "seed": 7}
        await chat.enter("/set seed")
        assert chat.app.chat.conversation.options == {"temperature": 0.5}


@pytest.mark.quick
def test_status_of_a_prompt_that_is_read() -> None:
    now = [0.0]
    answer = Answer(clock=lambda: now[0])
    answer.add(Started(60_000))
    answer.add(Prefilling(12_000, 1000))
    now[0] = 3.0
    assert answer.phase == "waiting"
    gpus = [GpuMemory("g", 16 * 2**30, 5 * 2**30)]
    parts = status_parts(Status("nano", "low", answer, n_ctx=65_536, gpus=gpus))
    assert parts[2:] == [
        "reading 12,000/60,000 (20 %) 3.0 s",
        "ctx ~60,000/65,536 (92 %)",
        "VRAM 11.0/16.0 GiB",
    ]
    split = status_parts(Status("nano", "low", answer, n_ctx=65_536, gpus=gpus, gpu_share=0.62))
    assert split == [*parts, "62 % on the GPU"]
    assert status_parts(Status("nano", "low", answer, note="running f"))[2] == "running f"
    long = "registry.example.com/some-user/gpt-oss-finetuned:120b-q8"
    assert status_parts(Status(long, "low"))[0] == "registry.examp…tuned:120b-q8"


def test_status_of_a_model_that_loads() -> None:
    answer = Answer(clock=lambda: 1.0)
    load = LoadStatus("m", "loading", completed=8_100_000_000, total=12_800_000_000)
    measured = msgspec.structs.replace(load, status="measuring")
    assert status_parts(Status("m", "low", answer))[2] == "loading the model 0.0 s"
    assert status_parts(Status("m", "low", answer, load=load))[2] == "loading 8.1/12.8 GB 0.0 s"
    text = status_parts(Status("m", "low", answer, load=measured))[2]
    assert text == "measuring the model, this once 0.0 s"
    assert status_parts(Status("m", "low", answer, n_ctx=8192))[2] == "reading the prompt 0.0 s"


class Loading(ScriptedServer):
    """A server that loads, with a GPU."""

    async def get(self, path: str, _answer_type: object) -> Any:
        if path != "/api/gptoss/status":
            return answer_of(path)
        load = LoadStatus("nano", "loading", completed=3_000_000_000, total=12_000_000_000)
        gpu = GpuMemory("g", 16 * 2**30, 4 * 2**30)
        return answer_of(path, gpus=[gpu], loading=[load])

    async def stream_chat(
        self, body: dict[str, Any], *_: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(30)
        yield {}


async def test_the_status_line_while_a_model_loads(history_path: Path) -> None:
    async with run_chat(Loading("", [], 1), history_path, size=(100, 24)) as chat:
        await chat.enter("hi")
        await chat.shows("loading 3.0/12.0 GB")
        await chat.shows("VRAM 12.0/16.0 GiB")
        await chat.press("escape")


def test_thinned_keeps_the_peaks() -> None:
    values = [1.0] * 1000
    values[777] = 9.0
    assert len(thinned(values, 100)) == 100
    assert max(thinned(values, 100)) == 9.0
    assert thinned([1.0, 2.0], 100) == [1.0, 2.0]


def test_energy_is_told_by_meter() -> None:
    stats = {"prompt_eval_count": 9, "eval_count": 50, "joules": {"gpu0": 12.25, "gpu1": 2.75}}
    assert stats_lines(stats)[-1] == "energy 15.0 J (gpu0 12.2 J, gpu1 2.8 J), 0.3 J/token"
