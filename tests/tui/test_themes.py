"""The chat can be read in every theme, and colours of the terminal are left to it."""

from collections.abc import Iterator
from typing import Any

import pytest
from rich.style import Style
from textual.theme import BUILTIN_THEMES

from gptoss_local.talk.history import History
from tests.tui.pictures import MARKDOWN, answer, still_server, talk, toolbox
from tests.tui.running_chat import Chat
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer

_LEAST_CONTRAST = 4.5  # of text in WCAG 2.2, 1.4.3
_LEAST_CONTRAST_OF_FRAMES = 3.0  # 1.4.11
_FRAMES = set("─│┌┐└┘├┤┼╭╮╰╯▌")
_ANSWER = f"""{MARKDOWN}
### Third
#### Fourth
##### Fifth
###### Sixth

So \\( a^2 \\), ~~not~~ <br>:

```js
const text = "string" + 12; // a comment
function f(a) {{ return null; }}
```

| a | long cell |
|---|---|
| 1 | {"words " * 20} |
| 2 | b |
"""
_COMMON = ("textual-dark", "textual-light", "ansi-dark", "nord")
_THEMES = [
    pytest.param(theme, marks=[] if theme in _COMMON else pytest.mark.nightly)
    for theme in BUILTIN_THEMES
]


@pytest.mark.parametrize("theme", _THEMES)
async def test_all_text_and_all_frames_are_seen(theme: str, history: History) -> None:
    conversation = Conversation(history, "nano", "medium")
    talk(conversation)
    answer(conversation, content=_ANSWER)
    server = ChatServer(still_server())
    app = ChatApp(server, history, conversation, toolbox, theme=theme)
    async with app.run_test(size=(100, 90), notifications=True) as pilot:
        chat = Chat(app, pilot)
        await chat.until(lambda: app.chat.loaded and "Sixth" in chat.screen())
        app.chat.prompt.cursor_blink = False  # the text under the cursor is not read
        check(chat, theme)  # the input has the focus and is empty
        chat.views()[3].focus()
        await chat.press("space", "space")  # the reasoning
        check(chat, theme)
        await chat.type("/s")  # completions
        check(chat, theme)


def check(chat: Chat, theme: str) -> None:
    styles = set(styles_of_words(chat))
    assert len(styles) > 40
    for text, style in styles:
        assert style.color is not None
        assert style.bgcolor is not None
        if theme.startswith("ansi"):
            assert style.color.triplet is style.bgcolor.triplet is None, text
            continue
        is_frame = set(text.strip()) <= _FRAMES
        least = _LEAST_CONTRAST_OF_FRAMES if is_frame else _LEAST_CONTRAST
        assert contrast(style) >= least, text


def styles_of_words(chat: Chat) -> Iterator[tuple[str, Style]]:
    cursor = chat.app.chat.prompt.cursor_screen_offset
    for y, strip in enumerate(chat.app.screen._compositor.render_strips()):
        x = 0
        for segment in strip:
            is_cursor = (x, y) == cursor
            x += segment.cell_length
            is_seen = any(c.isalnum() or c in _FRAMES for c in segment.text)
            if segment.style and is_seen and not is_cursor:
                yield segment.text, segment.style


def contrast(style: Style) -> float:
    """The contrast of letters and their background, as WCAG 2.2 defines it."""
    assert style.color is not None
    assert style.bgcolor is not None
    lights = sorted(_luminance(*colour.get_truecolor()) for colour in (style.color, style.bgcolor))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(*channels: int) -> float:
    linear = [((c / 255 + 0.055) / 1.055) ** 2.4 if c > 10 else c / 255 / 12.92 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


async def test_comments_are_dimmer_than_code_and_diffs_coloured(history: History) -> None:
    conversation = Conversation(history, "nano", "medium")
    talk(conversation)
    answer(conversation, content="```py\nx = 1  # why\n```\n\n```diff\n-old\n+new\n same\n```\n"
           "\n```c\n#define N 3\n```\n")  # fmt: skip
    app = ChatApp(ChatServer(still_server()), history, conversation, toolbox)
    async with app.run_test(size=(80, 40)) as pilot:
        chat = Chat(app, pilot)
        await chat.until(lambda: "+new" in chat.screen())
        colors: dict[str, Any] = {
            text.strip(): style.color.triplet
            for text, style in styles_of_words(chat)
            if style.color
        }
        assert max(colors["# why"]) < max(colors["same"])
        assert max(colors["# why"]) < max(colors["define N 3"])
        red, green = colors["-old"], colors["+new"]
        assert red[0] == max(red)
        assert green[1] == max(green)


async def test_a_marked_line_is_seen_without_colours(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    conversation = Conversation(history, "nano", "medium")
    app = ChatApp(ChatServer(still_server()), history, conversation, toolbox)
    async with app.run_test(size=(80, 40)) as pilot:
        chat = Chat(app, pilot)
        await chat.type("/e")
        styles = styles_of_words(chat)
        marked = [text.split()[0] for text, s in styles if s.bgcolor and s.bgcolor.name > "#c"]
        assert marked == ["/effort", "How"]
