"""Presets in the chat: picked, made, changed and removed, and what a chat says of its own."""

from pathlib import Path

import pytest

from gptoss_local.talk.presets import Preset, presets_path, read_presets, save_preset
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import seen
from tui.screens.dialog import ConfirmDialog
from tui.screens.presets import PresetForm, PresetsDialog

REVIEWER = Preset(
    system="You review code.\nBe terse.", effort="high", options={"temperature": 0.3, "seed": 7}
)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def listed(chat: Chat) -> None:
    await chat.press("f12")
    await chat.until(lambda: isinstance(chat.app.screen, PresetsDialog))


async def test_one_is_picked(tmp_path: Path) -> None:
    save_preset("plain", Preset())
    save_preset("reviewer", REVIEWER)
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.ask("before")
        await listed(chat)
        shown = " ".join(chat.screen().split())
        assert "reviewer" in shown
        assert "high · temperature 0.3, seed 7" in shown
        await chat.press("down", "enter")
        await chat.shows("nano │ high │ reviewer")
        await chat.shows("Preset reviewer: You review code. Be terse.")
        await chat.ask("first")
        await chat.shows("[system] You review code.")
        assert server.bodies[-1]["messages"] == [
            {"role": "system", "content": "You review code.\nBe terse."},
            {"role": "user", "content": "first"},
        ]
        assert server.bodies[-1]["think"] == "high"
        assert server.bodies[-1]["options"] == {"temperature": 0.3, "seed": 7}
        await listed(chat)
        assert "in use · high" in " ".join(chat.screen().split())
        await chat.press("escape", "f2")
        await chat.shows("· reviewer")
        await chat.press("escape")
        await chat.enter("/new")
        assert "reviewer" not in chat.screen()
    async with run_chat(server, tmp_path / "c", 2) as chat:
        await chat.shows("nano │ high │ reviewer")
        await chat.enter("/preset PLAIN")
        await chat.shows("nano │ high │ plain")
        assert chat.turns() == []


async def test_one_is_made_of_the_chat(tmp_path: Path) -> None:
    async with run_chat(seen(), tmp_path / "c") as chat:
        await listed(chat)
        await chat.shows("There are no presets yet.")
        await chat.press("enter", "e", "f8", "escape")
        await chat.enter("/system Speak like a pirate.")
        await chat.enter("/set temperature 1.5")
        await chat.ask("Ahoy")
        await listed(chat)
        await chat.press("n")
        await chat.shows("Speak like a pirate.")
        await chat.shows("temperature 1.5")
        await chat.press(*"pirate", "enter")
        await chat.press(*["backspace"] * 6, *"huge")
        await chat.press("ctrl+s")
        await chat.shows("there is no effort 'huge'")
        await chat.press(*["backspace"] * 4, "enter", "end", *",wrong")
        await chat.press("ctrl+s")
        await chat.shows("there is no option 'wrong'")
        await chat.press(*["backspace"] * 6, "tab", "enter", *"Arr")
        assert isinstance(chat.app.screen, PresetForm)
        await chat.press("ctrl+s")
        assert isinstance(chat.app.screen, PresetsDialog)
        await chat.shows("pirate")
        made = Preset(system="Speak like a pirate.\nArr", options={"temperature": 1.5})
        assert read_presets() == {"pirate": made}
        assert 'system = """Speak like a pirate.\nArr"""' in presets_path().read_text()


async def test_one_is_changed_and_removed(tmp_path: Path) -> None:
    save_preset("a", Preset(system="one"))
    save_preset("b", Preset(system="two"))
    async with run_chat(seen(), tmp_path / "c") as chat:
        await listed(chat)
        await chat.press("down", "e")
        await chat.shows("Preset b")
        await chat.press("!", "escape")
        assert isinstance(chat.app.screen, ConfirmDialog)
        await chat.shows("Leave without saving what you wrote?")
        await chat.press("n")
        await chat.press("ctrl+s")
        assert read_presets()["b"] == Preset(system="two!")
        await chat.press("e", "escape")  # nothing was changed, so nothing is asked
        assert isinstance(chat.app.screen, PresetsDialog)
        await chat.press("f8")
        await chat.shows("Delete the preset “b” for good?")
        await chat.press("n", "f8", "y")
        assert list(read_presets()) == ["a"]
        assert "two!" not in chat.screen()
        await chat.press("enter")
        await chat.shows("nano │ medium │ a")
