"""The menu of completions: every command, its arguments, files; the input keeps the keyboard."""

from tests.tui.running_chat import FRANCE, PARIS, Chat, OpenChat
from tui.actions import REGISTRY
from tui.widgets.prompt import CompletionMenu


def menu(chat: Chat) -> CompletionMenu:
    return chat.app.chat.prompt.menu


def marked(chat: Chat) -> str:
    option = menu(chat).highlighted_option
    return "" if option is None else str(option.prompt).lstrip("⇥ ").split()[0]


async def test_a_slash_leads_to_every_command(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/")
        seen = []
        for _ in REGISTRY.commands:
            await chat.shows(f"{marked(chat)} ")
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
        await chat.shows("nano │ medium")
        await chat.press("down", "down", "down", "enter")
        await chat.shows("nano │ high")
        assert chat.app.chat.typed == ""
        await chat.press(*"/effort ", "enter")  # nothing is marked: sent as it is typed
        await chat.shows("nano │ low")
        await chat.press(*"/think", "enter")  # an alias is meant as a whole; /effort cycles
        await chat.shows("nano │ medium")
        await chat.enter("/zz high")
        await chat.tells("there is no command /zz")
        await chat.press("ctrl+c", *"/hel", "enter")  # it has no arguments, so it runs
        await chat.shows("─ Help ─")
        await chat.press("escape")
        assert chat.app.chat.typed == ""


async def test_arrows_stay_with_the_text_beside_a_hint(open_chat: OpenChat) -> None:
    """After a long paste Tab unfolds it; Up is still the cursor's, and Esc stops the answer."""
    async with open_chat() as chat:
        prompt = chat.app.chat.prompt
        await chat.type("first\n")
        prompt.insert(prompt.folded.fold_paste("line\n" * 40))
        await chat.shows("⇥ unfold it")
        await chat.press("up")
        assert prompt.cursor_location[0] == 0


async def test_a_click_takes_one_and_leaves_the_keyboard(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.press("/")
        await chat.pilot.click(menu(chat), offset=(3, 1))
        assert chat.app.chat.typed.strip() == f"/{REGISTRY.commands[1].name}"
        assert chat.app.chat.focused is chat.app.chat.prompt


async def test_arguments(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        await chat.until(lambda: chat.app.chat.model_names)
        for typed, shown in (("/model n", "nano"), ("/tools p", "python"), ("/theme nor", "nord"),
                             ("/set num", "num_ctx"), ("/mouse ", "off"), ("/stats ", "on"),
                             ("/attach /et", "/etc/")):  # fmt: skip
            await chat.type(typed)
            await chat.until(lambda: menu(chat).display)
            for _ in range(12):
                await chat.press("down")
                if marked(chat) == shown:
                    break
            assert shown in chat.screen()
            await chat.press("tab")
            assert chat.app.chat.typed == f"{typed.split(' ')[0]} {shown}"
            chat.app.chat.prompt.fill("")
