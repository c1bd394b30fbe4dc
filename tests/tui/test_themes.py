"""The chat can be read in every theme, and colours of the terminal are left to it."""

from collections.abc import Iterator

import pytest
from rich.style import Style
from textual.theme import BUILTIN_THEMES

from tests.tui.running_chat import Chat
from tests.tui.snapshots.screen_cases import StillServer, talk
from tests.tui.snapshots.values import toolbox
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.history import History
from tui.server import ChatServer

_LEAST_CONTRAST = 4.0  # WCAG 2.2 asks for 4.5, and for 3 where letters are large or bold


@pytest.mark.parametrize("theme", BUILTIN_THEMES)
async def test_all_text_is_readable(theme: str, history: History) -> None:
    conversation = Conversation(history, "nano", "medium")
    talk(conversation)
    server = ChatServer(StillServer())
    app = ChatApp(server, history, conversation, toolbox(), theme=theme)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        chat = Chat(app, pilot)
        await chat.until(lambda: app.chat.loaded)
        chat.views()[3].focus()
        await chat.press("space", "space")  # the reasoning
        await chat.type("/s")  # completions
        styles = dict(styles_of_words(chat))
        assert len(styles) > 20
        for text, style in styles.items():
            assert style.color is not None
            assert style.bgcolor is not None
            if theme.startswith("ansi"):
                assert style.color.triplet is style.bgcolor.triplet is None, text
            else:
                assert contrast(style) >= _LEAST_CONTRAST, text


def styles_of_words(chat: Chat) -> Iterator[tuple[str, Style]]:
    for strip in chat.app.screen._compositor.render_strips():
        for segment in strip:
            if segment.style and any(character.isalnum() for character in segment.text):
                yield segment.text, segment.style


def contrast(style: Style) -> float:
    """Of letters and what they stand on, as WCAG 2.2 defines it."""
    assert style.color is not None
    assert style.bgcolor is not None
    lights = sorted(_luminance(*colour.get_truecolor()) for colour in (style.color, style.bgcolor))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(*channels: int) -> float:
    linear = [((c / 255 + 0.055) / 1.055) ** 2.4 if c > 10 else c / 255 / 12.92 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
