"""Keys and commands: the user's own, and whether all are documented."""

from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from tests.tui.running_chat import FRANCE, PARIS, OpenChat
from tui.actions import REGISTRY
from tui.app import binding_names, check_keys


async def test_keys_and_theme_are_the_users(open_chat: OpenChat) -> None:
    keys = {"chat.effort": "f9", "turn.copy": "y"}
    async with open_chat(keys=keys, theme="ansi-light") as chat:
        await chat.press("f4")
        await chat.shows("nano │ medium")
        await chat.press("f9")
        await chat.shows("nano │ high")
        assert await chat.ask(FRANCE) == PARIS
        chat.views()[-1].focus()
        await chat.press("y")
        assert chat.app.clipboard == PARIS


@pytest.mark.quick
def test_binding_ids_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    ids = binding_names()
    assert len(ids) > 20
    assert [name for name in ids if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"chat.efort": "f9"}, "Did you mean chat.effort?"),
        ({"f9": "effort"}, "There are chat.help"),
        ({"chat.effort": "ctrl-t"}, "As f9, ctrl+t"),
        ({"chat.effort": ""}, "As f9, ctrl+t"),
    ],
    ids=str,
)
def test_keys_that_nothing_has(keys: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_keys(keys)
    assert said in caught.value.hint


@pytest.mark.quick
def test_commands_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    assert [c.name for c in REGISTRY.commands if f"/{c.name}" not in page] == []
