"""A screen as text that people can read and compare: its characters, and styles with a meaning."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.strip import Strip

_ATTRIBUTES = ("bold", "italic", "underline", "reverse")
_COLOURS = ("error", "warning", "success", "accent")


def picture(app: App[Any]) -> str:
    """The rows of a screen, and below them `row: style: text` of what is marked."""
    strips = app.screen._compositor.render_strips()
    rows = "\n".join(strip.text.rstrip() for strip in strips)
    roles = _roles(app)
    marks = [mark for n, strip in enumerate(strips, 1) for mark in _marks(n, strip, roles)]
    return f"{rows.rstrip()}\n\n" + "".join(f"{line}\n" for line in _merged(marks))


def _roles(app: App[Any]) -> dict[str, str]:
    """By the colours of the theme, what they mean; the cursor of a list is a background.

    `marked` is the cursor of a list that keys reach while another part has the focus.
    """
    variables = app.get_css_variables()
    roles = {variables[f"text-{name}"].lower(): name for name in _COLOURS}
    roles |= {variables[name].lower(): name for name in _COLOURS}
    blurred = Color.parse(variables["surface"]) + Color.parse(
        variables["block-cursor-blurred-background"]
    )
    roles[f"on {blurred.hex6.lower()}"] = "marked"
    roles[f"on {variables['block-cursor-background'].lower()}"] = "cursor"
    return roles


def _marks(row: int, strip: Strip, roles: dict[str, str]) -> Iterator[tuple[int, str]]:
    runs = groupby(strip, key=lambda segment: _style_words(segment.style, roles))
    for words, segments in runs:
        text = "".join(segment.text for segment in segments).strip()
        if words and text:
            yield row, f"{words}: {text}"


def _style_words(style: Style | None, roles: dict[str, str]) -> str:
    if style is None:
        return ""
    words = [name for name in _ATTRIBUTES if getattr(style, name)]
    for prefix, colour in (("", style.color), ("on ", style.bgcolor)):
        if colour is not None and colour.triplet is not None:
            words.append(roles.get(prefix + colour.triplet.hex, ""))
    return " ".join(filter(None, words))


def _merged(marks: list[tuple[int, str]]) -> list[str]:
    """One line for the same mark in rows below each other, as a border is."""
    spans: list[tuple[int, int, str]] = []
    for row, mark in dict.fromkeys(marks):
        above = [(first, last, m) for first, last, m in spans if (last, m) == (row - 1, mark)]
        if above:
            spans[spans.index(above[0])] = (above[0][0], row, mark)
        else:
            spans.append((row, row, mark))
    return [f"{a if a == b else f'{a}-{b}'}: {mark}" for a, b, mark in spans]
