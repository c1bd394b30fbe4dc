"""Lists next to the conversation: lists of chats, models, links and presets, searches, views."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.api.gptoss import GpuMemory, ModelFit
from gptoss_local.api.models import JobStatus
from gptoss_local.base.errors import DownloadError
from gptoss_local.talk.history import History
from gptoss_local.talk.presets import Preset, presets_path, read_presets, save_preset
from tests.tui.running_chat import Chat, run_chat
from tests.tui.scripted import ScriptedServer, installed
from tui.markdown_blocks import code_blocks, links_of
from tui.screens.chat import ChatScreen
from tui.screens.chats import ChatsDialog
from tui.screens.dialog import ConfirmDialog
from tui.screens.models import DownloadDialog
from tui.screens.presets import PresetForm, PresetsDialog
from tui.widgets.answer_view import AnswerView
from tui.widgets.chat_list import ChatList
from tui.widgets.speed_panel import stats_lines

GB = 10**9
GIB = 2**30


def begun(path: Path, *titles: str) -> None:
    history = History(path)
    for title in titles:
        chat_id = history.new_chat("nano", "medium", title)
        asked = history.add(chat_id, None, "user", f"Tell me of {title}")
        history.add(chat_id, asked.id, "assistant", f"All of\n{title}, [b]briefly")
    history.close()


def long_chat(path: Path, n_questions: int = 60) -> int:
    """A chat of questions and answers; returns its id."""
    history = History(path)
    chat_id = history.new_chat("nano", "medium")
    parent_id = None
    for n in range(n_questions):
        parent_id = history.add(chat_id, parent_id, "user", f"question-{n:02}").id
        text = "- row\n" * 30 + f"\nanswer-{n:02}"
        parent_id = history.add(chat_id, parent_id, "assistant", text).id
    history.close()
    return chat_id


async def listed(chat: Chat) -> None:
    await chat.press("f2")
    await chat.until(lambda: isinstance(chat.app.screen, ChatsDialog))


def titles(chat: Chat) -> list[str]:
    """The titles in the list, from the top."""
    rows = [row.strip("│ ▊▎") for row in chat.screen().split("\n")]
    return [rows[n - 1] for n, row in enumerate(rows) if " ago · " in row or "just now · " in row]


def marked(chats: ChatList) -> str:
    option = chats.highlighted_option
    return "" if option is None else str(option.prompt)


async def test_chats_are_listed_on_the_start_page_and_beside_the_chat(history_path: Path) -> None:
    begun(history_path, "Rivers", "Mountains")
    async with run_chat(ScriptedServer(), history_path, size=(130, 30)) as chat:
        sidebar = chat.app.chat.query_one("#sidebar", ChatList)
        await chat.shows("Model    nano, medium effort", "Memory ", "Rivers")
        await chat.press("f4")
        await chat.shows("nano, high effort")
        await listed(chat)
        await chat.shows("All of Mountains, [b]briefly")  # a preview
        await chat.press("down")
        await chat.shows("❯ Tell me of Rivers")
        await chat.press(*"zzz")
        await chat.shows("Nothing found.")
        await chat.until(lambda: "❯ Tell me of" not in chat.screen())
        await chat.press("escape")
        await chat.pilot.click(chat.app.chat.query_one("#recent", ChatList), offset=(3, 1))
        await chat.shows("❯ Tell me of Rivers")
        assert "Model    nano" not in chat.screen()
        assert chat.app.chat.focused is chat.app.chat.prompt
        await chat.press("ctrl+n")
        await chat.ask("Lakes")
        await chat.until(lambda: sidebar.region.width == 30)
        await chat.until(lambda: marked(sidebar) == "Lakes")
        await chat.pilot.click(sidebar, offset=(3, 1))
        await chat.shows("❯ Tell me of ")
        assert chat.app.chat.focused is chat.app.chat.prompt
        for is_shown in (False, True):
            await chat.press("ctrl+b")
            await chat.until(lambda is_shown=is_shown: bool(sidebar.region) == is_shown)
        await chat.pilot.resize_terminal(119, 30)
        await chat.until(lambda: not sidebar.region)


async def test_a_small_start_page_shows_its_beginning(history_path: Path) -> None:
    begun(history_path, *(f"Rivers {n}" for n in range(5)))
    async with run_chat(ScriptedServer(), history_path, size=(40, 15)) as chat:
        await chat.shows("Model    nano", "Memory ", "/command")
        assert "Rivers" not in chat.screen()


async def test_a_pinned_chat_is_on_top_and_a_list_that_is_cut_says_so(history_path: Path) -> None:
    history = History(history_path)
    for n in range(301):
        history.new_chat("nano", "medium", f"chat-{n:03}")
    history.close()
    async with run_chat(ScriptedServer(), history_path) as chat:
        await listed(chat)
        await chat.shows("chat-300", "F6 pin", "the first 300; words find older ones")
        await chat.press("up")  # from the first to the last
        await chat.shows("chat-001")
        await chat.press("f6")
        await chat.until(lambda: "★ chat-001" in titles(chat))
        await chat.press("escape")
        await listed(chat)
        assert titles(chat)[:2] == ["★ chat-001", "chat-300"]
        await chat.press("f6")  # the pinned chat is marked, and it moves
        await chat.until(lambda: "★" not in chat.screen())
        await chat.press(*"chat-000")
        await chat.until(lambda: set(re.findall(r"chat-\d+", chat.screen())) == {"chat-000"})
        await chat.press("enter")
        await chat.until(lambda: chat.app.chat.conversation.chat_id == 1)


async def test_searches_and_keys_lead_to_places_of_a_long_chat(history_path: Path) -> None:
    long_chat(history_path)
    async with run_chat(ScriptedServer("hello"), history_path) as chat:
        await chat.enter("/search question-52")
        await chat.shows("question-52")
        await chat.press("enter")
        await chat.shows("❯ question-52")
        await chat.press("pageup")
        await chat.until(lambda: "• row" in chat.screen().split("❯ question-52")[0])
        for _ in range(30):
            await chat.press("pagedown")
        await chat.shows("answer-59")
        for keys, shown in (
            (["alt+up"], "question-59"),
            (["alt+up"] * 10, "question-49"),
            (["alt+down"], "question-50"),
            (["alt+home"], "question-00"),
            (["alt+down"], "question-01"),
            (["alt+end"], "answer-59"),
        ):
            for key in keys:
                await chat.press(key)
            await chat.shows(shown)
        transcript, turns = chat.app.chat.transcript, chat.turns()
        acts = (transcript.open(turns), transcript.show_end(-1), transcript.show_question(1))
        await asyncio.gather(*acts, transcript.open(turns), transcript.add(turns[-1]))
        assert [view.turn for view in chat.views()][-8:] == turns[-8:]  # none is there twice
        await chat.press("ctrl+f", *"Answer-1", "enter")
        await chat.shows("answer-19")
        assert "10 of 10" in chat.notices()
        await chat.press("ctrl+f", "enter")
        await chat.shows("answer-18")
        await chat.enter("/find nowhere")
        assert "'nowhere' is not in this chat" in chat.notices()
        await chat.enter("/edit 50")  # of 60
        await chat.type("-again")
        await chat.press("enter")
        await chat.answered()
        await chat.press("alt+left")
        await chat.shows("❯ question-10")
        await chat.press("alt+right")
        await chat.shows("question-10-again")
        await chat.press("ctrl+r")  # the messages sent in all chats
        await chat.shows("question-59")
        await chat.press(*"30 quest", "enter")
        await chat.until(lambda: chat.app.chat.prompt.text == "question-30")


async def test_find_lands_on_the_words_and_marks_them(history_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {n} of the **fox** number {n} jumps." for n in range(1500))
    code = "```py\n" + "\n".join(f"row_{n} = {n}" for n in range(1500)) + "\n```"
    async with run_chat(ScriptedServer(f"{text}\n\n{code}"), history_path) as chat:
        await chat.ask("go")
        for words in ("fox number 1177", "number 302 jumps", "row_1333", "paragraph 77 of"):
            await chat.enter(f"/find {words}")
            await chat.shows(words.replace("p", "P", words[0] == "p"))
            (answer,) = chat.app.chat.query(AnswerView)
            assert len([span for spans in answer._marks.values() for span in spans]) == 1
        await chat.press("f2")
        await chat.press(*"row_777")
        await chat.shows("row_777 = 777")
        await chat.pilot.pause(0.3)
        await chat.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.shows("row_777 = 777", "row_775 = 775")


async def test_an_exported_chat_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is pinned as it was. tests/history compares each field and refuses other files."""
    monkeypatch.chdir(tmp_path)
    begun(tmp_path / "a", "Wetter 日本 🎉")
    async with run_chat(ScriptedServer(), tmp_path / "a", 1) as chat:
        await listed(chat)
        await chat.press("f6", "escape")
        await chat.enter(f"/export {tmp_path}/my chat.json")
    begun(tmp_path / "b", "There before")
    async with run_chat(ScriptedServer(), tmp_path / "b") as chat:
        await chat.enter(f"/import {tmp_path}/my chat.json")
        assert "Imported “Wetter 日本 🎉”." in chat.notices()
        await chat.shows("❯ Tell me of Wetter")
        await listed(chat)
        (tmp_path / "my chat.json").rename(tmp_path / "x")
        await chat.press("f7", "y", "enter")
        await chat.tells("there is no file y")
        await chat.press("f7", "x", "enter")
        await chat.until(lambda: titles(chat) == ["★ Wetter 日本 🎉"] * 2 + ["There before"])
        await chat.press("escape")
        for data in (b"[" * 200_000, bytes(range(256)), b'{"messages": []}'):
            (tmp_path / "x").write_bytes(data)
            chat.told.clear()
            await chat.enter("/import x")
            await chat.tells("exported chat")
            assert "/export NAME.json" in chat.notices() or "chats CHAT --json" in chat.notices()
        for argument, words in (("", "needs a file"), (str(tmp_path), "there is no file")):
            await chat.enter(f"/import {argument}")
            await chat.tells(words)
        assert len(chat.app.chat.parts.history.chats()) == 3


TEXT = """See [the page](https://example.org/a), <https://example.org/b> and https://example.org/c.

```sh
one
```

[bad](javascript:alert(1)), [again](https://example.org/a), `https://example.org/code`

```py
two = 2
three = 3
```
"""
LINKS = [f"https://example.org/{name}" for name in "abc"]


@pytest.mark.quick
async def test_links_and_blocks(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert links_of("[x](https://a\x1b]8;;b) <file:///etc/passwd> ftp://x.test") == []
    wiki = "https://en.wikipedia.org/wiki/Rust_(language)"
    assert links_of(f"{wiki}, ({wiki}) and https://a.b/x_(y)_z") == [wiki, "https://a.b/x_(y)_z"]
    assert code_blocks("a\n```py\n1\n```\n- b\n  ```\n  2\n  ```\n") == ["1\n", "2\n"]
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url, **_: opened.append(url))
    async with run_chat(ScriptedServer(TEXT), history_path) as chat:
        await chat.press("alt+c")
        await chat.tells("there is no answer to copy")
        await chat.ask("go")
        await chat.until(lambda: chat.links().get("the page") == LINKS[0])
        assert set(chat.links().values()) == set(LINKS)
        await chat.press("alt+o")
        await chat.shows("─ Open a link ─", *LINKS)
        await chat.press("down", "enter")
        await chat.until(lambda: opened == [LINKS[1]])
        await chat.press("alt+c")
        await chat.shows("─ Copy a code block ─", "2  two = 2")
        await chat.press("down", "enter")
        assert chat.app.clipboard == "two = 2\nthree = 3\n"
        await chat.enter("/copy 1")
        await chat.until(lambda: chat.app.clipboard == "one\n")
        await chat.enter("/copy 3")
        await chat.tells("the last answer has 2 code blocks")
        await chat.enter("/open 4")
        await chat.tells("the last answer has 3 links")


async def test_presets_are_made_picked_changed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    save_preset("plain", Preset(system="one"))
    server = ScriptedServer()

    async def open_presets() -> None:
        await chat.press("f12")
        await chat.until(lambda: isinstance(chat.app.screen, PresetsDialog))

    async with run_chat(server, tmp_path / "c") as chat:
        await chat.enter("/system Speak like a pirate.")
        await chat.enter("/set temperature 1.5")
        await chat.ask("Ahoy")
        await open_presets()
        await chat.press("n")
        await chat.shows("Speak like a pirate.", "temperature 1.5")
        await chat.press(*"pirate", "enter", *["backspace"] * 6, *"huge", "ctrl+s")
        await chat.shows("there is no effort 'huge'")
        await chat.press(*["backspace"] * 4, *"high", "enter", "end", *",wrong", "ctrl+s")
        await chat.shows("there is no option 'wrong'")
        await chat.press(*["backspace"] * 6, "tab", "enter", *"Arr")
        assert isinstance(chat.app.screen, PresetForm)
        await chat.press("ctrl+s")
        assert isinstance(chat.app.screen, PresetsDialog)
        pirate = Preset(
            system="Speak like a pirate.\nArr", effort="high", options={"temperature": 1.5}
        )
        assert read_presets() == {"plain": Preset(system="one"), "pirate": pirate}
        assert 'system = """Speak like a pirate.\nArr"""' in presets_path().read_text()
        await chat.press("escape")
        await chat.enter("/preset PIRATE")
        await chat.shows("nano │ high │ pirate", "Preset pirate: Speak like a pirate. Arr")
        await chat.ask("first")
        assert [m["content"] for m in server.bodies[-1]["messages"]] == [pirate.system, "first"]
        assert server.bodies[-1]["think"] == "high"
        assert server.bodies[-1]["options"] == {"temperature": 1.5}
        await open_presets()
        assert "in use · high" in " ".join(chat.screen().split())
        await chat.press("escape")
        await chat.enter("/new")
        await chat.until(lambda: "pirate" not in chat.screen())
    async with run_chat(server, tmp_path / "c", 2) as chat:
        await chat.shows("nano │ high │ pirate")
        await open_presets()
        await chat.press("home", "e")
        name = "plain" if "Preset plain" in chat.screen() else "pirate"
        await chat.press("!", "escape")
        assert isinstance(chat.app.screen, ConfirmDialog)
        await chat.shows("Leave without saving what you wrote?")
        await chat.press("n", "ctrl+s")
        assert read_presets()[name].system.endswith("!")
        await chat.press("e", "escape")  # nothing was changed, so nothing is asked
        assert isinstance(chat.app.screen, PresetsDialog)
        await chat.press("f8")
        await chat.shows(f"Delete the preset “{name}” for good?")
        await chat.press("n", "f8", "y")
        assert name not in read_presets()


class Store(ScriptedServer):
    """A server that has nano alone, and fetches others as far as a test lets it."""

    def __init__(self) -> None:
        fits = [ModelFit("gpt-oss:20b", "vram", 1.0, 9)]
        super().__init__(tags=[installed("nano", GB, "10M")], fits=fits)
        self.frames: asyncio.Queue[JobStatus | None] = asyncio.Queue()
        self.n_pulls = self.n_left = 0

    async def stream(
        self, path: str, body: dict[str, Any], _line_type: object
    ) -> AsyncIterator[JobStatus]:
        assert (path, body["model"]) == ("/api/pull", "gpt-oss:20b")
        self.n_pulls += 1
        try:
            while frame := await self.frames.get():
                if frame.status == "success":
                    return
                yield frame
            raise DownloadError("no network", hint="Try again.")
        finally:
            self.n_left += 1

    def say(self, done_gb: float) -> None:
        status = JobStatus("pulling x", total=14 * GB, completed=int(done_gb * GB))
        self.frames.put_nowait(status)


async def test_a_model_is_downloaded_from_the_list(tmp_path: Path) -> None:
    """It is watched, left, seen again, stopped, fails, and is there."""
    store = Store()
    async with run_chat(store, tmp_path / "c", notifications=True) as chat:

        async def begin() -> None:
            await chat.enter("/model")
            await chat.shows("fits in VRAM", "to download")
            await chat.press("down", "enter")
            await chat.shows("Download gpt-oss:20b (", "fits in VRAM")
            await chat.press("y")
            await chat.until(lambda: isinstance(chat.app.screen, DownloadDialog))

        async def over() -> None:
            await chat.until(lambda: not isinstance(chat.app.screen, DownloadDialog))

        await begin()
        await chat.shows("asking the hub")
        store.say(2)
        await chat.press("escape")
        await chat.enter("/model")
        await chat.shows("downloading: 2.0 GB of 14.0 GB")
        store.say(3)
        await chat.shows("downloading: 3.0 GB of 14.0 GB")
        await chat.press("escape")
        await chat.enter("/model gpt-oss:20b")
        await chat.shows("3.0 GB of 14.0 GB", "/s · ", " left")
        assert store.n_pulls == 1
        await chat.press("x")
        await over()
        assert store.n_left == 1
        await begin()
        store.frames.put_nowait(None)
        await chat.tells("no network")
        await over()
        await begin()
        store.tags.append(installed("gpt-oss:20b", GB))
        store.frames.put_nowait(JobStatus("success"))
        await over()
        await chat.tells("gpt-oss:20b is here")
        await chat.enter("/model gpt-oss:20b")
        assert chat.app.chat.conversation.model == "gpt-oss:20b"
        store.tags.pop()
        await begin()
    assert (store.n_pulls, store.n_left) == (4, 4)  # leaving the chat ends it


async def test_versions_are_compared_and_branches_are_chats(history_path: Path) -> None:
    server = ScriptedServer("Well.", gpus=[GpuMemory("g", 16 * GIB, 4 * GIB)])

    async with run_chat(server, history_path, size=(120, 40)) as chat:
        await chat.ask("go")
        await chat.shows("VRAM 12.0/16.0 GiB")
        await chat.press("f5")
        await chat.until(lambda: len(server.bodies) == 2)
        await chat.answered()
        await chat.enter("/compare")

        def row_of(text: str) -> int:
            rows = chat.screen().splitlines()
            return next((n for n, row in enumerate(rows) if text in row), -1)

        await chat.until(lambda: 0 <= row_of("1: nano, medium") == row_of("2: nano, high"))
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: 0 <= row_of("1: nano") < row_of("2: nano"))
        await chat.press("escape")
        await chat.ask("second")
        chat.views()[1].focus()
        await chat.pilot.pause()
        chat.app.chat.action_command("branch")
        await chat.until(lambda: len(chat.turns()) == 2)
        await chat.ask("third")
        assert [summary.n_turns for summary in chat.app.chat.parts.history.chats()] == [4, 5]


def test_energy_is_told_by_meter() -> None:
    stats = {"prompt_eval_count": 9, "eval_count": 50, "joules": {"gpu0": 12.25, "gpu1": 2.75}}
    assert stats_lines(stats)[-1] == "energy 15.0 J (gpu0 12.2 J, gpu1 2.8 J), 0.3 J/token"
