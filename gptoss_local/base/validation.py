"""Turns a validator's message into plain English."""

import re
from typing import Any

import msgspec

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
    "bytes": "text",
}
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}
_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains (unknown) field|missing required field) `(.+)`", re.DOTALL)
_INVALID = re.compile(r"Invalid (?:enum )?value (.+)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_ESCAPE = re.compile(  # a whole character in two halves, a half without the other, any other
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MAX_SHOWN = 40  # characters of a value


def in_words(error: Exception, values: Any = None) -> str:
    """Describe the mistake, quoting `values`: `port must be a whole number, not 'abc'`.

    Errors that are not of a validator keep their words.
    """
    if not isinstance(error, msgspec.DecodeError):
        return str(error)
    said, at, place = str(error).replace("key` in `$", "$.a key").rpartition(" - at `")
    if not at:
        said, place = place, ""
    where = place.strip("`").removeprefix("$").removeprefix(".") or "it"
    if found := _EXPECTED.fullmatch(said):
        kinds, bound, got = found.groups()
        *most, last = (_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")
        wanted = f"{', '.join(most)} or {last}" if most else last
        stands = _quoted(values, place.strip("`")) or _KINDS.get(got or "", got or "")
        unlike = f", not {stands}" if stands else ""
        return f"{where} must be {wanted}{_bound(bound)}{unlike}"
    inside = f" in {where}" if place else ""
    if found := _FIELD.fullmatch(said):
        return f"{found[2]!r} is {'not known' if found[1] else 'missing'}{inside}"
    if found := _INVALID.fullmatch(said):
        return f"{where} cannot be {found[1]}"
    return said[:1].lower() + said[1:] + inside if not said.startswith("JSON") else said


def _bound(text: str) -> str:
    words = text.strip().removesuffix(".0")
    for sign, meaning in _BOUNDS.items():
        if words.startswith(f"{sign} "):
            return f" {meaning} {words[len(sign) + 1 :]}"
        words = words.replace(f"of length {sign} ", f"with a length {meaning} ")
    return f" {words.replace('matching regex', 'that matches')}" if words else ""


def _quoted(values: Any, place: str) -> str:
    """Quote the plain value at, e.g., `$.options.stop[0]`; empty if it cannot be shown."""
    for name, index in _STEP.findall(place):
        try:
            values = values[name] if name else values[int(index)]
        except (LookupError, TypeError):
            return ""
    if not isinstance(values, str | int | float):
        return ""
    shown = str(values).lower() if isinstance(values, bool) else repr(values)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


def lenient(data: bytes) -> bytes:
    """Return JSON with lone surrogates and bytes of other encodings as U+FFFD, as Go reads it.

    JavaScript that cuts an emoji sends half of a surrogate pair; PowerShell 5.1 sends Latin-1.
    """
    utf8 = data.decode(errors="replace").encode()
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["half"] else match[0], utf8)
