"""Keywords for objects and arrays, in those that llguidance enforces.

Names that must match are patterns of properties, and lists of unique items are written out.
"""

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from gptoss_local.harmony.pattern import literal
from gptoss_local.harmony.regex_algebra import (
    ANY,
    ANYTHING,
    NOTHING,
    Node,
    TooComplexError,
    alt,
    both,
    matches,
    negated,
    repeat,
)
from gptoss_local.harmony.schema_document import step
from gptoss_local.harmony.schema_keywords import ENFORCED, NOT_ENFORCED, TYPES, has_type
from gptoss_local.harmony.schema_reading import Reader, Reading, exact, is_anything
from gptoss_local.harmony.string_formats import NATIVE, PATTERNS

_COUNT_MAX = 2**31 - 1
_N_LISTS_MAX = 500  # of unique items: all of 5 values take 326; more are too much for llguidance
_MAX_REFERENCES = 20  # from one to the next
_IN_PLACE = {"$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies"}
_NOT_ARRAYS = [name for name in TYPES if name not in ("array", "integer")]


def _count(at: Reading, keyword: str, value: Any) -> None:
    at.out[keyword] = at.count(keyword, value, _COUNT_MAX)


def _properties(at: Reading, keyword: str, value: Any) -> None:
    at.out[keyword] = {
        name: at.read(part, f".{keyword}{step(name)}")
        for name, part in _named(at, keyword, value).items()
    }


def _pattern_properties(at: Reading, keyword: str, value: Any) -> None:
    found: dict[str, list[Any]] = {}
    for pattern, part in _named(at, keyword, value).items():
        way = f".{keyword}{step(pattern)}"
        text = at.expression(at.language(pattern, way), way)
        found.setdefault(text, []).append(at.read(part, way))
    at.out[keyword] = {
        text: parts[0] if len(parts) == 1 else {"allOf": parts} for text, parts in found.items()
    }


def _named(at: Reading, keyword: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        at.refuse(f"'{keyword}'", "must be an object of schemas")
    return value


def _required(at: Reading, keyword: str, value: Any) -> None:
    if value is False:  # draft 3
        return
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        at.refuse(f"'{keyword}'", "must be a list of names")
    at.out[keyword] = list(dict.fromkeys(value))


def _part(at: Reading, keyword: str, value: Any) -> None:
    at.out[keyword] = at.read(value, f".{keyword}")


def _items(at: Reading, keyword: str, value: Any) -> None:
    if not isinstance(value, list):
        at.out[keyword] = at.read(value, f".{keyword}")
        return
    _listed(at, "prefixItems", value, keyword)  # as tuples were written before draft 2020-12
    if "additionalItems" in at.schema:
        at.out[keyword] = at.read(at.schema["additionalItems"], ".additionalItems")


def _prefix_items(at: Reading, keyword: str, value: Any) -> None:
    _listed(at, keyword, value, keyword)


def _listed(at: Reading, keyword: str, value: Any, written: str) -> None:
    if not isinstance(value, list):
        at.refuse(f"'{written}'", "must be a list of schemas")
    at.out[keyword] = [at.read(part, f".{written}[{i}]") for i, part in enumerate(value)]


READERS: dict[str, Reader] = {
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _part,
    "required": _required,
    "minProperties": _count,
    "maxProperties": _count,
    "items": _items,
    "prefixItems": _prefix_items,
    "minItems": _count,
    "maxItems": _count,
}


def finish(at: Reading) -> None:
    """Read the keywords that say something about others of the same schema."""
    for keyword, rest in (
        ("unevaluatedProperties", "additionalProperties"),
        ("unevaluatedItems", "items"),
    ):
        if keyword in at.schema:
            _unevaluated(at, keyword, rest)
    if "propertyNames" in at.schema:
        _property_names(at, at.schema["propertyNames"])
    if at.schema.get("uniqueItems") is True:
        _unique_items(at)
    least, required = at.out.get("minProperties", 0), at.out.get("required", ())
    if least > len(required) + 1:  # llguidance counts a property that is repeated again
        at.unsupported("minProperties")


def _unevaluated(at: Reading, keyword: str, rest: str) -> None:
    """Read it as the rest of the properties or items, if no other schema has a say."""
    value = at.schema[keyword]
    if is_anything(value) or rest in at.out:
        return
    if not _IN_PLACE.isdisjoint(at.schema):
        at.unsupported(keyword)
    at.out[rest] = at.read(value, f".{keyword}")


def _property_names(at: Reading, schema: Any) -> None:
    """Make names a pattern of those properties that have no schema of their own."""
    way = ".propertyNames"
    allowed = both(*_languages(at, schema, way, _MAX_REFERENCES))
    if allowed == ANYTHING:
        return
    if at.schema.get("patternProperties"):
        at.refuse("'propertyNames'", "is not supported next to 'patternProperties'")
    properties = at.out.get("properties", {})
    try:
        names = [*properties, *at.out.get("required", ())]
        wrong = [name for name in names if not matches(allowed, name)]
    except TooComplexError:
        at.refuse("'propertyNames'", "is too complex to enforce")
    others = at.out.get("additionalProperties", True)
    rest = both(allowed, *(negated(literal(name)) for name in properties))
    at.out["patternProperties"] = {at.expression(rest, way): others}
    at.out["additionalProperties"] = False
    if wrong:
        at.out["properties"] = properties | dict.fromkeys(wrong, False)


def _languages(at: Reading, schema: Any, way: str, n_left: int) -> Iterator[Node]:
    """Yield what names must be, all of it: they are text, so most keywords say nothing of them."""
    if isinstance(schema, bool):
        yield ANYTHING if schema else NOTHING
        return
    if not isinstance(schema, dict) or not n_left:
        at.refuse("it", "is not a schema", way)
    for keyword, value in schema.items():
        match keyword, value:
            case "enum", list():
                yield alt(*(literal(name) for name in value if isinstance(name, str)))
            case "const", str():
                yield literal(value)
            case "pattern", _:
                yield at.language(value, way)
            case "minLength", _:
                yield repeat(ANY, at.count(keyword, value, _COUNT_MAX), None)
            case "maxLength", _:
                yield repeat(ANY, 0, at.count(keyword, value, _COUNT_MAX))
            case "format", str() if value in PATTERNS:
                yield at.language(PATTERNS[value])
            case "allOf", list():
                for part in value:
                    yield from _languages(at, part, way, n_left)
            case "$ref", str() if target := at.resolve(value):
                yield from _languages(at, target.schema, way, n_left - 1)
            case "type", _:
                named = value if isinstance(value, list) else [value]
                yield ANYTHING if "string" in named else NOTHING
            case (("const" | "$ref" | "not" | "anyOf" | "oneOf" | "enum" | "allOf"), _):
                at.refuse(f"'{keyword}'", "is not supported", way)
            case "format", str() if value in NATIVE:
                at.refuse(f"'format' {value!r}", "is not supported", way)
            case _ if keyword in NOT_ENFORCED:
                at.refuse(f"'{keyword}'", "is not supported", way)


def _unique_items(at: Reading) -> None:
    """Write out all lists, if there are few; llguidance has no such keyword."""
    least, most = at.out.get("minItems", 0), at.out.get("maxItems")
    if most is not None and most <= 1:
        return
    values = _values(at, at.schema.get("items", True), _MAX_REFERENCES)
    if values is None or "prefixItems" in at.out:
        at.refuse("'uniqueItems'", "is supported for items of a short enum only")
    most = len(values) if most is None else min(most, len(values))
    if sum(math.perm(len(values), n) for n in range(least, most + 1)) > _N_LISTS_MAX:
        at.refuse("'uniqueItems'", f"allows more than {_N_LISTS_MAX} lists, which is not supported")
    lists = [list(row) for n in range(least, most + 1) for row in itertools.permutations(values, n)]
    at.also.append(
        {"anyOf": [{"enum": lists}, {"type": _NOT_ARRAYS}]} if lists else {"type": _NOT_ARRAYS}
    )


def _values(at: Reading, schema: Any, n_left: int) -> list[Any] | None:
    """Return all values that a schema allows, if it lists them; None if it does not."""
    if not isinstance(schema, dict) or not n_left:
        return None
    said = {k: v for k, v in schema.items() if k in ENFORCED or k in NOT_ENFORCED}
    named = said.pop("type", list(TYPES))
    types = named if isinstance(named, list) else [named]
    match said:
        case {"$ref": str(reference)} if len(said) == 1 and (target := at.resolve(reference)):
            values = _values(at, target.schema, n_left - 1)
        case {"enum": list(values)} if len(said) == 1:
            pass
        case {"const": value} if len(said) == 1:
            values = [value]
        case {} if all(name in ("boolean", "null") for name in types) and not said:
            values = [False, True, None]
        case _:
            return None
    if values is None:
        return None
    unique = {json.dumps(exact(value), sort_keys=True): exact(value) for value in values}
    return [value for value in unique.values() if any(has_type(value, name) for name in types)]
