"""Links of an answer are the terminal's, open by a key, and blocks are copied without counting."""

import stat
import sys
from pathlib import Path

import pytest

from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.tui.running_chat import run_chat
from tests.tui.scripted import ScriptedServer
from tests.tui.test_tmux import Tmux, terminal  # noqa: F401  # a fixture
from tui.markdown_blocks import links_of

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


def test_links_of_a_text() -> None:
    assert links_of(TEXT) == LINKS
    assert links_of("[x](https://a\x1b]8;;b) <file:///etc/passwd> ftp://x.test") == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_links_and_blocks(history_path: Path, size: tuple[int, int]) -> None:
    async with run_chat(ScriptedServer(TEXT, [], 1), history_path, size=size) as chat:
        await chat.press("alt+c")
        await chat.until(lambda: "there is no answer to copy" in chat.notices())
        await chat.ask("go")
        await chat.until(lambda: chat.links().get("the page") == LINKS[0])
        assert set(chat.links().values()) == set(LINKS[:2])  # terminals find bare ones
        await chat.press("alt+o")
        await chat.until(lambda: "─ Open a link ─" in chat.screen())
        assert all(link in chat.screen() for link in LINKS)
        await chat.press("escape", "alt+c")
        await chat.until(lambda: "─ Copy a code block ─" in chat.screen())
        assert "2  two = 2" in chat.screen()
        await chat.press("down", "enter")
        assert chat.app.clipboard == "two = 2\nthree = 3\n"
        await chat.type("/copy ")
        await chat.until(
            lambda: "1" in str(chat.app.chat.prompt.menu.get_option_at_index(0).prompt)
        )
        await chat.press("down", "enter")
        assert chat.app.clipboard == "one\n"
        await chat.enter("/copy 3")
        await chat.until(lambda: "the last answer has 2 code blocks" in chat.notices())
        await chat.enter("/open 4")
        await chat.until(lambda: "the last answer has 3 links" in chat.notices())


@pytest.mark.parametrize("size", [(100, 30)])
def test_a_key_opens_a_link_in_the_browser(
    size: tuple[int, int],
    terminal: Tmux,  # noqa: F811
    server: RunningServer,
    tmp_path: Path,
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    environment = server.environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment |= {"HOME": str(tmp_path), "BROWSER": str(browser)}
    history = History(server.home / "chats.sqlite3")
    number = history.new_chat("nano", "low")
    asked = history.add(number, None, "user", "Where?")
    history.add(number, asked.id, "assistant", TEXT)
    history.close()
    command = [sys.executable, "-m", "gptoss_local", "chat", "nano", "--chat", str(number)]
    terminal.start(command, environment)
    terminal.wait_for("three = 3")
    terminal.press("M-o")
    terminal.wait_for("─ Open a link ─")
    terminal.press("Down", "Enter")
    wait_until(opened.exists, timeout_s=20)
    wait_until(lambda: opened.read_text() == LINKS[1], timeout_s=5)
