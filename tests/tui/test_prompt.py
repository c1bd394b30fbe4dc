"""The input: keys that send and keys that do not, commands, completions, long pastes, earlier
messages.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Paste

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer, installed
from tui.actions import REGISTRY
from tui.paste import Composed, FoldedTexts, shown_parts
from tui.widgets.prompt import CompletionMenu

LONG = "\n".join(f"    line {n} of the log" for n in range(400))
CHIP = "[pasted #1: 400 lines, ~2,373 tokens]"


async def paste(chat: Chat, text: str) -> None:
    chat.app.chat.prompt.post_message(Paste(text))
    await chat.pilot.pause()


def menu(chat: Chat) -> CompletionMenu:
    return chat.app.chat.prompt.menu


def marked(chat: Chat) -> str:
    option = menu(chat).highlighted_option
    return "" if option is None else str(option.prompt).lstrip("⇥ ").split()[0]


@pytest.mark.quick
async def test_what_sends_and_what_does_not(history_path: Path) -> None:
    server = ScriptedServer()
    async with run_chat(server, history_path) as chat:
        prompt = chat.app.chat.prompt
        await chat.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d", "\\", "enter")
        assert server.bodies == []
        height = prompt.size.height
        await chat.press("e", "enter")
        await chat.answered()
        assert server.asked == ["a\nb\nc\nd\ne"]
        await chat.press("enter", " ", "enter")
        assert prompt.size.height < height
        await chat.press("ctrl+c", "x", " ")
        await paste(chat, "one\r\ntwo\r\n")
        assert prompt.text == "x one\ntwo\n"
        await paste(chat, "\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x9b2Jend\n")
        assert prompt.text == "x one\ntwo\nred 2Jend\n"  # no text drives the terminal
        await paste(chat, LONG)
        assert len(server.bodies) == 1
        await chat.ask("")
        assert server.asked[1:] == [f"x one\ntwo\nred 2Jend\n{LONG}"]
        await chat.ask("b")
        await chat.press("up")
        assert prompt.text == "b"
        await chat.press(*["up"] * 12)  # also through the lines of the one between
        assert prompt.text == "a\nb\nc\nd\ne"
        await chat.press(*["down"] * 24)
        assert prompt.text == ""


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", "new", ""),
        ("/BYE ", "quit", ""),
        ("/effort  high", "effort", "high"),
        ("/think low", "effort", "low"),
        ("/system Be\nterse.", "system", "Be\nterse."),
        ("hello", None, ""),
        ("/etc/hosts is what?", None, ""),
        ("a /new", None, ""),
        ("/2 = ?", None, ""),
        ("/new\nidea", None, ""),
        ("/usr", None, ""),
    ],
)
def test_commands_and_messages(text: str, name: str | None, argument: str) -> None:
    parsed = REGISTRY.parse(text)
    assert (parsed and (parsed[0].name, parsed[1])) == (name and (name, argument))


@pytest.mark.quick
def test_commands_that_are_not_there_and_their_ranks() -> None:
    for text, hint in (("/zz high", "/help"), ("/effrt high", "/effort"), ("/", "/help"),
                       ("/new what is this?", "alone"), ("/BYE now", "alone")):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            REGISTRY.parse(text)
        assert hint in caught.value.hint
    assert [c.name for c in REGISTRY.complete("/re")][:3] == ["resume", "recall", "retry"]
    assert REGISTRY.complete("/xport")[0].name == "export"
    assert REGISTRY.complete("/zz") == []


async def test_a_slash_leads_to_every_command_and_its_arguments(history_path: Path) -> None:
    server = ScriptedServer(tags=[installed("nano")])
    async with run_chat(server, history_path) as chat:
        await chat.press("/")
        seen = []
        for _ in REGISTRY.commands:
            await chat.shows(f"{marked(chat)} ")
            seen.append(marked(chat).removeprefix("/"))
            await chat.press("down")
        assert seen == [command.name for command in REGISTRY.commands]
        assert chat.app.chat.typed == "/"
        await chat.pilot.click(menu(chat), offset=(3, 1))
        assert chat.app.chat.typed.startswith("/")
        assert chat.app.chat.focused is chat.app.chat.prompt
        await chat.press("escape")
        assert not menu(chat).display
        await chat.press("ctrl+c")
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


async def test_enter_takes_the_marked_one(history_path: Path) -> None:
    async with run_chat(ScriptedServer(), history_path) as chat:
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
        await chat.type("first\n")
        await paste(chat, LONG)
        await chat.shows("⇥ unfold it")
        await chat.press("up")  # is the cursor's next to a hint
        assert chat.app.chat.prompt.cursor_location[0] == 0


@pytest.mark.quick
async def test_a_paste_stays_one_line_until_a_key_unfolds_it(tmp_path: Path) -> None:
    """In the input, in the queue, in the transcript, and when it comes back after a restart."""
    server = ScriptedServer(holds=True)
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.enter("go")
        await chat.type("see ")
        await paste(chat, LONG)
        await chat.press("enter")
        await chat.shows(f"» see {CHIP}")
        await chat.press("escape")  # takes it back
        assert chat.app.chat.prompt.text == f"see {CHIP}"
        server.may_end.set()
        await chat.until(lambda: not chat.app.chat.is_answering)
        await chat.ask(" please?")
        assert server.asked[-1] == f"see {LONG} please?"
        await chat.shows("❯ see", "▸ pasted: 400 lines, ~2,373 tokens", " please?")
        assert "line 0 of" not in chat.screen()
        chat.views()[2].focus()
        await chat.press("space")
        chat.app.chat.transcript.scroll_home(animate=False)
        await chat.shows("▾ pasted: 400 lines", "    line 5 of the log")
        await chat.press("space")
        await chat.shows("▸ pasted: 400 lines")
    async with run_chat(server, tmp_path / "c", 1) as chat:
        await chat.press("up")
        assert chat.app.chat.prompt.text == f"see {CHIP} please?"
        chat.app.chat.prompt.fill("")
        await chat.enter("/edit")
        await chat.ask(" again")
        assert server.asked[-1] == f"see {LONG} please? again"
        await chat.shows("‹ 2/2 ›", "▸ pasted: 400 lines")


async def test_a_long_message_without_folds(tmp_path: Path) -> None:
    """As an editor makes one, or an earlier version stored it."""
    history = History(tmp_path / "c")
    chat_id = history.new_chat("nano", "medium")
    history.add(chat_id, None, "user", LONG)
    history.close()
    async with run_chat(ScriptedServer(), tmp_path / "c", chat_id) as chat:
        await chat.shows("line 9 of the log", "▸ more: 390 lines, ~2,318 tokens")
        assert "line 10 of the log" not in chat.screen()
        chat.views()[0].focus()
        await chat.press("space")
        await chat.shows("line 399 of the log")


_TEXTS = st.lists(st.tuples(st.text(max_size=30), st.text(min_size=1, max_size=40)), max_size=4)


@pytest.mark.quick
@given(_TEXTS, st.text(max_size=30))
def test_no_character_is_lost_by_folding(parts: list[tuple[str, str]], end: str) -> None:
    """A text that is typed, sent, stored, shown and typed again has every character."""
    folded = FoldedTexts()
    typed, whole = "", ""
    for before, pasted in parts:
        pasted = f"x{pasted}\n" * 9 + "y"
        typed += before + folded.fold_paste(pasted)
        whole += before + pasted
    message = folded.unfold(typed + end)
    assert message.text.strip() == (whole + end).strip()
    assert FoldedTexts().unfold(message.text).text == message.text.strip()
    again = FoldedTexts()
    assert again.unfold(again.refold(message)) == message
    shown = "".join(text for _, text in shown_parts(message))
    assert "".join(shown.split()) == "".join(message.text.split())


def test_typed_brackets_are_text() -> None:
    folded = FoldedTexts()
    assert re.fullmatch(r"\[pasted #1: 51 lines, .*", chip := folded.fold_paste("x\n" * 50))
    for typed in ("[pasted #1]", "[file #1 is broken]", "[pasted #1: 2 lines]", "[a #2: b]"):
        assert folded.unfold(typed) == Composed(typed)
    assert folded.unfold(chip).text == ("x\n" * 50).rstrip()
