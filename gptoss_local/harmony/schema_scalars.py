"""Keywords for strings and numbers, in values that llguidance enforces."""

from typing import Any

from gptoss_local.harmony.pattern import intersections
from gptoss_local.harmony.regex_algebra import Node
from gptoss_local.harmony.schema_keywords import TYPES
from gptoss_local.harmony.schema_reading import Reader, Reading
from gptoss_local.harmony.string_formats import NATIVE, PATTERNS

_LENGTH_MAX = 2**32 - 1
# Beyond these llguidance fails. A bound that is further off becomes one of them, and is kept, too.
_NUMBER_MAX = 10**18 - 1
_INTEGER_MAX = 2**63 - 1
_EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_NOT_STRINGS = [name for name in TYPES if name not in ("string", "integer")]


def _length(at: Reading, keyword: str, value: Any) -> None:
    at.out[keyword] = at.count(keyword, value, _LENGTH_MAX)


def _pattern(at: Reading, keyword: str, value: Any) -> None:
    _match(at, at.language(value))


def _format(at: Reading, keyword: str, value: Any) -> None:
    if not isinstance(value, str):
        at.refuse("'format'", "must be text")
    if value in NATIVE:
        at.out["format"] = value
    elif value in PATTERNS:
        _match(at, at.language(PATTERNS[value]))


def _match(at: Reading, language: Node) -> None:
    rows = [[{"pattern": at.expression(part)} for part in row] for row in intersections(language)]
    if len(rows) == 1:
        at.also.extend(rows[0])
    else:
        strings = [{"type": "string", "allOf": row} for row in rows]
        at.also.append({"anyOf": [*strings, {"type": _NOT_STRINGS}]})


def _bound(at: Reading, keyword: str, value: Any) -> None:
    if isinstance(value, bool) and keyword not in _EXCLUSIVE:
        return  # draft 4, where it says how the other bound is meant
    if not isinstance(value, int | float) or isinstance(value, bool):
        at.refuse(f"'{keyword}'", "must be a number")
    sign = 1 if keyword in ("maximum", "exclusiveMaximum") else -1
    is_integer = at.types - {"null"} == {"integer"}
    most = _INTEGER_MAX if is_integer and sign > 0 else _NUMBER_MAX
    if value * sign < -_NUMBER_MAX:
        at.refuse(f"'{keyword}'", "is too large a number")
    exclusive = _EXCLUSIVE.get(keyword, keyword)
    name = exclusive if at.schema.get(exclusive) is True else keyword
    at.out[name] = min(value * sign, most) * sign


def _multiple_of(at: Reading, keyword: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        at.refuse(f"'{keyword}'", "must be a number above 0")
    at.out[keyword] = value


READERS: dict[str, Reader] = {
    "minLength": _length,
    "maxLength": _length,
    "pattern": _pattern,
    "format": _format,
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "multipleOf": _multiple_of,
}
