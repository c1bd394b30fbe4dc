"""The menu of completions: every command, its arguments, files; the input keeps the keyboard."""

import pytest

from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat
from tui.actions import REGISTRY
from tui.widgets.completion import CompletionMenu


def menu(chat: Chat) -> CompletionMenu:
    return chat.app.chat.prompt.menu


def marked(chat: Chat) -> str:
    option = menu(chat).highlighted_option
    return "" if option is None else str(option.prompt).lstrip("⇥ ").split()[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_slash_leads_to_every_command(open_chat: OpenChat, size: tuple[int, int]) -> None:
    async with open_chat(size=size) as chat:
        await chat.press("/")
        seen = []
        for _ in REGISTRY.commands:
            assert f"{marked(chat)} " in chat.screen()
            seen.append(marked(chat).removeprefix("/"))
            await chat.press("down")
        assert seen == [command.name for command in REGISTRY.commands]
        assert chat.app.chat.typed == "/"
        await chat.press("escape")
        assert not menu(chat).display
        await chat.press("backspace")
        assert await chat.ask(FRANCE) == PARIS


async def test_enter_takes_the_marked_one(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/effo", "enter")  # it has arguments, which come next
        assert chat.app.chat.typed.strip() == "/effort"
        assert "nano │ medium" in chat.screen()
        await chat.press("down", "down", "down", "enter")
        await chat.until(lambda: "nano │ high" in chat.screen())
        assert chat.app.chat.typed == ""
        await chat.press(*"/effort ", "enter")  # nothing is marked: sent as it is typed
        await chat.until(lambda: "nano │ low" in chat.screen())
        await chat.press(*"/hel", "enter")  # it has none, so it runs
        await chat.until(lambda: "─ Help ─" in chat.screen())
        await chat.press("escape")
        assert chat.app.chat.typed == ""


async def test_a_whole_name_is_the_command_meant(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press(*"/think", "enter")  # an alias; /effort cycles
        await chat.until(lambda: "nano │ high" in chat.screen())
        await chat.enter("/zz high")
        await chat.until(lambda: "there is no command /zz" in chat.notices())


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/model n", "nano"),
        ("/tools p", "python"),
        ("/theme nor", "nord"),
        ("/set num", "num_ctx"),
        ("/mouse ", "off"),
        ("/stats ", "on"),
        ("/attach /et", "/etc/"),
    ],
)
async def test_arguments(open_chat: OpenChat, typed: str, shown: str) -> None:
    async with open_chat() as chat:
        await chat.until(lambda: chat.app.chat.model_names)
        await chat.type(typed)
        await chat.until(lambda: menu(chat).display)
        for _ in range(12):
            await chat.press("down")
            if marked(chat) == shown:
                break
        assert shown in chat.screen()
        await chat.press("tab")
        assert chat.app.chat.typed == f"{typed.split(' ')[0]} {shown}"


async def test_arrows_stay_with_the_text_beside_a_hint(open_chat: OpenChat) -> None:
    """After a long paste Tab unfolds it; Up is still the cursor's, and Esc stops the answer."""
    async with open_chat() as chat:
        prompt = chat.app.chat.prompt
        await chat.type("first\n")
        prompt.insert(prompt.folded.fold_paste("line\n" * 40))
        await chat.until(lambda: "⇥ unfold it" in chat.screen())
        await chat.press("up")
        assert prompt.cursor_location[0] == 0


async def test_a_click_takes_one_and_leaves_the_keyboard(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/")
        await chat.pilot.click(menu(chat), offset=(3, 1))
        assert chat.app.chat.typed.strip() == f"/{REGISTRY.commands[1].name}"
        assert chat.app.chat.focused is chat.app.chat.prompt


async def test_a_path_is_text(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.ask("/etc is a folder")
        assert chat.turns()[0].content == "/etc is a folder"
        await chat.ask("/usr/lib is one, too")
        assert chat.turns()[2].content == "/usr/lib is one, too"
