"""Text that is safe to store, and text that is safe to show."""

import re

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor (ECMA-48, 5.4)
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, the clipboard
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # all others but tab and newline
    r"|[\u202a-\u202e\u2066-\u2069]"  # other directions, with which code reads as other code
)
_SPACE = re.compile(r"\s+")


def storable(text: str) -> str:
    """Replace lone surrogates, and NUL, at which functions of SQLite end a text."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def plain_text(text: str) -> str:
    return _CONTROL.sub("", text)


def one_line(text: str, max_chars: int | None = None) -> str:
    line = _SPACE.sub(" ", plain_text(storable(text))).strip()
    is_long = max_chars is not None and len(line) > max_chars
    return f"{line[:max_chars].rstrip()}…" if is_long else line
