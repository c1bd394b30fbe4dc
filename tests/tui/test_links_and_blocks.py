"""Links of an answer are the terminal's, open by a key, and blocks are copied without counting."""

from pathlib import Path

import pytest

from tests.tui.running_chat import run_chat
from tests.tui.scripted import ScriptedServer
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


@pytest.mark.quick
async def test_links_and_blocks(history_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url, **_: opened.append(url))
    async with run_chat(ScriptedServer(TEXT, [], 1), history_path) as chat:
        await chat.press("alt+c")
        await chat.tells("there is no answer to copy")
        await chat.ask("go")
        await chat.until(lambda: chat.links().get("the page") == LINKS[0])
        assert set(chat.links().values()) == set(LINKS[:2])  # terminals find bare ones
        await chat.press("alt+o")
        await chat.shows("─ Open a link ─")
        assert all(link in chat.screen() for link in LINKS)
        await chat.press("down", "enter")
        await chat.until(lambda: opened == [LINKS[1]])
        await chat.press("alt+c")
        await chat.shows("─ Copy a code block ─")
        await chat.shows("2  two = 2")
        await chat.press("down", "enter")
        assert chat.app.clipboard == "two = 2\nthree = 3\n"
        await chat.type("/copy ")
        await chat.until(
            lambda: "1" in str(chat.app.chat.prompt.menu.get_option_at_index(0).prompt)
        )
        await chat.press("down", "enter")
        assert chat.app.clipboard == "one\n"
        await chat.enter("/copy 3")
        await chat.tells("the last answer has 2 code blocks")
        await chat.enter("/open 4")
        await chat.tells("the last answer has 3 links")
