"""The input: what sends and what does not, pastes, files, completions, earlier messages."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.color import Color
from textual.events import Paste
from textual.pilot import Pilot

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ContentDelta, ReasoningDelta
from gptoss_local.base.printable import printable
from gptoss_local.talk.answer import Answer
from tui.actions import REGISTRY
from tui.app import Printable
from tui.markdown_blocks import code_blocks
from tui.widgets.prompt import Prompt


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.prompt = Prompt(REGISTRY)

    def compose(self) -> ComposeResult:
        yield self.prompt.menu
        yield self.prompt

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.sent.append(self.prompt.folded.unfold(event.text).text)


@asynccontextmanager
async def hosted() -> AsyncIterator[tuple[Host, Pilot[None]]]:
    host = Host()
    async with host.run_test() as pilot:
        yield host, pilot


async def attached(host: Host, pilot: Pilot[None]) -> None:
    """Wait until files are read."""
    while "[reading " in host.prompt.text:
        await pilot.pause(0.01)


@pytest.mark.quick
async def test_enter_sends_and_other_enters_do_not() -> None:
    async with hosted() as (host, pilot):
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d", "\\", "enter")
        assert host.sent == []
        height = host.prompt.size.height
        await pilot.press("e", "enter")
        assert host.sent == ["a\nb\nc\nd\ne"]
        await pilot.press("enter", " ", "enter")
        assert len(host.sent) == 1
        assert host.prompt.size.height < height


@pytest.mark.quick
async def test_pastes_never_send_and_long_ones_are_folded() -> None:
    async with hosted() as (host, pilot):
        await pilot.press("x", " ")
        host.prompt.post_message(Paste("one\r\ntwo\r\n"))
        await pilot.pause()
        assert (host.sent, host.prompt.text) == ([], "x one\ntwo\n")
        long = "\n".join(f"line {n}" for n in range(40))
        host.prompt.post_message(Paste("\x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x9b2Jend\n"))
        await pilot.pause()
        assert host.prompt.text == "x one\ntwo\nred 2Jend\n"  # no text drives the terminal
        host.prompt.post_message(Paste(long))
        await pilot.pause()
        assert host.prompt.text.endswith("[pasted #1: 40 lines, ~78 tokens]")
        await pilot.press("enter")
        assert host.sent == [f"x one\ntwo\nred 2Jend\n{long}"]


@pytest.mark.quick
async def test_at_attaches_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.md").write_text("```py\nx\n```\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    monkeypatch.chdir(tmp_path)
    async with hosted() as (host, pilot):
        host.prompt.fill("Read @no")
        assert [each.text for each in host.prompt.completions()] == ["@notes.md"]
        await pilot.press("tab")
        await attached(host, pilot)
        chip = r"\[file #1: notes\.md, 4 lines, ~\d+ tokens\]"  # its path counts
        assert re.fullmatch(f"Read {chip} ", host.prompt.text)
        await pilot.press("enter")
        assert host.sent[0].endswith("notes.md:\n````\n```py\nx\n```\n````")
        host.prompt.fill("@pic")
        await pilot.press("tab")
        await attached(host, pilot)
        assert host.prompt.text == "@pic"


async def test_paths_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my notes").mkdir()
    (tmp_path / "my notes" / "of may.md").write_text("x")
    monkeypatch.chdir(tmp_path)
    async with hosted() as (host, pilot):
        host.prompt.fill("ask @bob, read @my")
        await pilot.press("tab")
        assert host.prompt.text == "ask @bob, read @my notes/"
        await pilot.press(*"of", "space")
        assert [each.text for each in host.prompt.completions()] == ["@my notes/of may.md"]
        await pilot.press("tab")
        await attached(host, pilot)
        assert host.prompt.text.startswith("ask @bob, read [file #1: of may.md, 1 line,")
        host.prompt.fill("@my own words\nare not one")
        assert host.prompt.completions() == []


async def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    async with hosted() as (host, pilot):
        for typed in ("@~nobody-of-that-name/x", "@x", "@~nobody-of-that-name", "@what? x"):
            host.prompt.fill(typed)
            await pilot.press("tab")
            await attached(host, pilot)
            assert host.prompt.text == typed


@pytest.mark.parametrize("typed", [f"@bob, what of {'this ' * 60}?", "猫" * 120 + ".png"])
async def test_text_that_is_too_long_for_a_name(typed: str) -> None:
    async with hosted() as (host, pilot):
        host.prompt.fill(typed)
        await pilot.press("tab")
        await attached(host, pilot)
        await pilot.press("x")
        assert host.prompt.text == f"{typed}x"


async def test_up_recalls_what_was_sent() -> None:
    async with hosted() as (host, pilot):
        await pilot.press("a", "enter", "b", "enter", "up")
        assert host.prompt.text == "b"
        await pilot.press("up", "up")
        assert host.prompt.text == "a"
        await pilot.press("down", "down")
        assert host.prompt.text == ""


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", "new", ""),
        ("/BYE ", "quit", ""),
        ("/effort  high", "effort", "high"),
        ("/?", "help", ""),
        ("/think low", "effort", "low"),
        ("/system Be\nterse.", "system", "Be\nterse."),
    ],
)
def test_commands(text: str, name: str, argument: str) -> None:
    parsed = REGISTRY.parse(text)
    assert parsed is not None
    assert (parsed[0].name, parsed[1]) == (name, argument)


@pytest.mark.parametrize(
    "text",
    ["hello", "/etc/hosts is what?", "a /new", "/2 = ?", "/new\nidea", "/etc is a folder", "/usr"],
)
def test_messages_are_no_commands(text: str) -> None:
    assert REGISTRY.parse(text) is None


@pytest.mark.quick
def test_unknown_command() -> None:
    with pytest.raises(UsageError) as caught:
        REGISTRY.parse("/zz high")
    assert "/help" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        REGISTRY.parse("/effrt high")
    assert "/effort" in caught.value.hint
    with pytest.raises(UsageError):
        REGISTRY.parse("/")


@pytest.mark.quick
def test_commands_are_ranked() -> None:
    assert [c.name for c in REGISTRY.complete("/re")][:3] == ["resume", "recall", "retry"]
    assert REGISTRY.complete("/xport")[0].name == "export"
    assert REGISTRY.complete("/zz") == []


@given(st.text())
def test_no_text_drives_the_terminal(text: str) -> None:
    shown = printable(f"{text}\x1b]52;c;AAAA\x07\x9b31m\u202e")
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)
    assert "\u202e" not in shown


def test_pieces_of_a_row_that_are_clean_stay() -> None:
    clean = Segment("a")
    kept, changed = Printable().apply([clean, Segment("b\x1b")], Color(0, 0, 0))
    assert kept is clean
    assert changed.text == "b"


def test_code_blocks_also_in_lists() -> None:
    assert code_blocks("a\n```py\n1\n```\n- b\n  ```\n  2\n  ```\n") == ["1\n", "2\n"]


def test_speed_counts_reasoning_and_not_the_wait() -> None:
    now = [0.0]
    answer = Answer(lambda: now[0])
    for n in range(11):
        now[0] = 5 + n / 10
        answer.add(ReasoningDelta("x") if n < 6 else ContentDelta("x"))
    assert answer.tok_s == pytest.approx(10)
    assert answer.ttft_s == 5
    assert answer.reasoning_s == pytest.approx(0.6)
    answer.end("stopped")
    answer.end("failed")
    assert answer.phase == "stopped"
