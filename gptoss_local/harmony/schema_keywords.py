"""Keywords of JSON Schema: which are enforced, which are notes, and which look like a slip.

What is in none of these tables is an annotation of someone's (JSON Schema 2020-12, core, 4.3.1) and
demands nothing.
"""

import functools
import re
from typing import Any

ENFORCED = frozenset({
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "nullable",
    "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
    "minProperties", "maxProperties", "items", "prefixItems", "additionalItems", "minItems",
    "maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "unevaluatedProperties",
    "unevaluatedItems",
})  # fmt: skip
"""In whole or in part. `nullable` is OpenAPI's."""

NOTES = frozenset({
    "$schema", "$vocabulary", "$comment", "$id", "id", "$anchor", "$dynamicAnchor",
    "$recursiveAnchor", "$defs", "definitions", "title", "description", "default", "examples",
    "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema",
    "example", "discriminator", "externalDocs", "xml",
})  # fmt: skip
"""Notes, names and places of other schemas, in any draft; the last four are OpenAPI's."""

NOT_ENFORCED = frozenset({
    "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
    "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef", "divisibleBy", "disallow",
    "extends",
})  # fmt: skip
"""They demand something; the last three are of draft 3."""

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")

_KNOWN = ENFORCED | NOTES | NOT_ENFORCED
_MAX_SLIP = 40  # characters; no keyword is nearly as long
_SHORT = {"min": "minimum", "max": "maximum", "item": "items", "prop": "properties"}


def _plain(keyword: str) -> str:
    return re.sub(r"[^a-z0-9]", "", keyword.lower())


_BY_PLAIN = {_plain(keyword): keyword for keyword in _KNOWN}


def slip(keyword: str, value: Any) -> str:
    """Return the keyword that is probably meant by one that does not exist; empty if none is.

    Notes are not among them: they demand nothing, however they are spelled. What begins like
    `@type` or `ui:type` belongs to another vocabulary.
    """
    if (
        keyword in _KNOWN
        or len(keyword) > _MAX_SLIP
        or not re.match(r"(?!x-|_|\w+:\w)[\w\s$]", keyword)
    ):
        return ""
    plain = _plain(keyword)
    if plain == "ref" and not str(value).startswith("#"):
        return ""  # Mongoose's, the name of a collection
    meant = _SHORT.get(plain) or _BY_PLAIN.get(plain) or _near(plain)
    return "" if meant in NOTES else meant


@functools.lru_cache(maxsize=1000)
def _near(plain: str) -> str:
    """Return a keyword that differs by one letter, or by two if it is long."""
    for other, keyword in _BY_PLAIN.items():
        size = min(len(plain), len(other))
        if size >= 6 and _distance(plain, other) <= (2 if size >= 9 else 1):
            return keyword
    return ""


def _distance(first: str, second: str) -> int:
    """Count the letters to insert, remove, replace or swap; 3 or more are all the same."""
    if abs(len(first) - len(second)) > 2:
        return 3
    before, last, row = [0], [0], list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, last, row = last, row, [i]
        for j, other in enumerate(second, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and other == first[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
    return row[-1]


def has_type(value: Any, name: str) -> bool:
    """Return whether a value is of a type of JSON Schema, for which 1.0 is an integer."""
    match value:
        case None:
            return name == "null"
        case bool():
            return name == "boolean"
        case int():
            return name in ("integer", "number")
        case float():
            return name == "number" or (name == "integer" and value.is_integer())
        case str():
            return name == "string"
        case list():
            return name == "array"
        case _:
            return name == "object"
