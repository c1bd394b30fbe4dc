"""Long pastes stay one line: in the input, in the transcript, and when they come back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Paste

from gptoss_local.talk.history import History
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer, seen
from tui.paste import Composed, FoldedTexts, shown_parts

LONG = "\n".join(f"    line {n} of the log" for n in range(400))
OTHER = "\n".join(f"行 {n}: 值" for n in range(60))


async def paste(chat: Chat, text: str) -> None:
    chat.app.chat.prompt.post_message(Paste(text))
    await chat.pilot.pause()


@pytest.mark.quick
async def test_a_paste_is_one_line_until_a_key_unfolds_it(tmp_path: Path) -> None:
    server = seen()
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.type("What is wrong in ")
        await paste(chat, LONG)
        await chat.type(" or in ")
        await paste(chat, OTHER)
        await chat.ask(" please?")
        assert server.asked == [f"What is wrong in {LONG} or in {OTHER} please?"]
        screen = chat.screen()
        assert "❯ What is wrong in" in screen
        assert "▸ pasted: 400 lines, ~2,373 tokens" in screen
        assert "▸ pasted: 60 lines, ~178 tokens" in screen
        assert " please?" in screen
        assert "line 0 of" not in screen
        chat.views()[0].focus()
        await chat.press("space")
        chat.app.chat.transcript.scroll_home(animate=False)
        await chat.pilot.pause()
        await chat.shows("▾ pasted: 400 lines")
        await chat.shows("    line 5 of the log")
        await chat.press("space")
        await chat.until(lambda: "line 5" not in chat.screen())
        await chat.shows("▸ pasted: 400 lines")


async def test_it_comes_back_folded(tmp_path: Path) -> None:
    """When a message is edited, recalled, or taken back; also after a restart."""
    server = seen()
    chip = "see [pasted #1: 400 lines, ~2,373 tokens]"
    async with run_chat(server, tmp_path / "c") as chat:
        await chat.type("see ")
        await paste(chat, LONG)
        await chat.ask("")
        await chat.press("up")
        assert chat.app.chat.prompt.text == chip
    async with run_chat(server, tmp_path / "c", 1) as chat:
        await chat.shows("▸ pasted: 400 lines")
        await chat.press("up")
        assert chat.app.chat.prompt.text == chip
        chat.app.chat.prompt.fill("")
        await chat.enter("/edit")
        assert chat.app.chat.prompt.text == chip
        await chat.shows("[pasted #1: 400 lines")
        await chat.ask(" again")
        assert server.asked[-1] == f"see {LONG} again"
        await chat.shows("‹ 2/2 ›")
        await chat.shows("▸ pasted: 400 lines")


async def test_it_waits_and_is_taken_back_folded(tmp_path: Path) -> None:
    async with run_chat(
        ScriptedServer("Seen. ", ["word "], 30, holds=True), tmp_path / "c"
    ) as chat:
        await chat.enter("go")
        await chat.type("and ")
        await paste(chat, LONG)
        await chat.press("enter")
        await chat.shows("» and [pasted #1: 400 lines, ~2,373 tokens]")
        await chat.press("escape")
        assert chat.app.chat.prompt.text == "and [pasted #1: 400 lines, ~2,373 tokens]"
        await chat.press("escape")
        await chat.answered()


async def test_a_long_message_without_folds(tmp_path: Path) -> None:
    """As an editor makes one, or an earlier version stored it."""
    history = History(tmp_path / "c")
    chat_id = history.new_chat("nano", "medium")
    history.add(chat_id, None, "user", LONG)
    history.close()
    async with run_chat(seen(), tmp_path / "c", chat_id) as chat:
        await chat.shows("line 9 of the log")
        assert "line 10 of the log" not in chat.screen()
        await chat.shows("▸ more: 390 lines, ~2,318 tokens")
        chat.views()[0].focus()
        await chat.press("space")
        await chat.shows("line 399 of the log")


_TEXTS = st.lists(st.tuples(st.text(max_size=30), st.text(min_size=1, max_size=40)), max_size=4)


@pytest.mark.quick
@given(_TEXTS, st.text(max_size=30))
def test_nothing_is_lost(parts: list[tuple[str, str]], end: str) -> None:
    """What is typed, sent, stored, shown and typed again has every character."""
    folded = FoldedTexts()
    typed, whole = "", ""
    for before, pasted in parts:
        pasted = f"x{pasted}\n" * 9 + "y"
        typed += before + folded.fold_paste(pasted)
        whole += before + pasted
    typed, whole = typed + end, whole + end
    message = folded.unfold(typed)
    assert message.text.strip() == whole.strip()
    assert FoldedTexts().unfold(message.text).text == message.text.strip()
    again = FoldedTexts()
    assert again.unfold(again.refold(message)) == message
    shown = "".join(text for _, text in shown_parts(message))
    assert "".join(shown.split()) == "".join(message.text.split())


def test_typed_brackets_are_text() -> None:
    folded = FoldedTexts()
    chip = folded.fold_paste("x\n" * 50)
    for typed in ("[pasted #1]", "[file #1 is broken]", "[pasted #1: 2 lines]", "[a #2: b]"):
        assert folded.unfold(typed) == Composed(typed)
    assert folded.unfold(chip).text == ("x\n" * 50).rstrip()
