"""Text of a model as it may be shown: no control characters, so it cannot drive the terminal.

Without its ESC or C1 byte, what is left of a control sequence is harmless text.
"""

_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_BIDI = dict.fromkeys((*range(8234, 8239), *range(8294, 8298)))
_DROPPED = _CONTROL | _BIDI  # overrides of direction make code read as what it is not


def printable(text: str) -> str:
    """Drop what is not printed; line ends and tabs stay. Works on any piece of a stream."""
    return text.translate(_DROPPED)
