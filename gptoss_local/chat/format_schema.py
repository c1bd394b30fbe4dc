"""The schema of a format -> what llguidance enforces of it, all of it, or an error.

llguidance refuses keywords of JSON Schema that it knows and does not enforce, but it lets pass what
it does not know, and keywords of other drafts than the one that `$schema` names.

Source: `IMPLEMENTED` and `META_AND_ANNOTATIONS` in llguidance's json/schema.rs, and its
docs/json_schema.md.
"""

from collections.abc import Iterator
from copy import copy
from typing import Any

from gptoss_local.errors import UsageError

Schema = dict[str, Any]

_ENFORCED = {
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "required",
    "additionalProperties", "patternProperties", "minProperties", "maxProperties", "items",
    "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$defs",
    "definitions", "$id", "$anchor",
}  # fmt: skip
# Of JSON Schema and, the last three, of OpenAPI: notes for people and programs, no constraints.
_NOTES = {
    "$schema", "$comment", "id", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "example",
    "discriminator", "externalDocs",
}  # fmt: skip
# Keywords that are not enforced, with values that demand nothing.
_IDLE: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "minContains": (0,),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "propertyNames": (True, {}, {"type": "string"}),
    "nullable": (False,),
}
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")
_PATH_MAX = 120  # characters


def enforceable(schema: Any, path: str = "#") -> Any:
    """The schema in keywords of draft 2020-12, all of which are enforced.

    Args:
        schema: As a client sends it.
        path: A JSON pointer to it, for messages.

    Raises:
        UsageError: it has another keyword; the message names it and its place.
    """
    if not isinstance(schema, dict):
        return schema  # true, false, or what llguidance refuses
    schema = _of_draft_2020_12(schema)
    for keyword, value in schema.items():
        if keyword in _ENFORCED or keyword in _NOTES or keyword.startswith("x-"):
            continue
        if value not in _IDLE.get(keyword, ()):
            raise not_enforceable(f"'{keyword}' is not supported", path)
    least, required = schema.get("minProperties", 0), schema.get("required", ())
    is_number = isinstance(least, int) and isinstance(required, (list, tuple))
    if is_number and least > len(required) + 1:  # llguidance counts a repeated property again
        raise not_enforceable(f"'minProperties' of {least} is not supported", path)
    kept = {k: copy(v) for k, v in schema.items() if k in _ENFORCED}
    for container, key, step in _parts(kept):
        container[key] = enforceable(container[key], path + step)
    return kept


def places(schema: Any, path: str) -> Iterator[tuple[str, Schema]]:
    """All objects among a schema's parts, inner ones first, then the schema itself."""
    if isinstance(schema, dict):
        for container, key, step in _parts(schema):
            yield from places(container[key], path + step)
        yield path, schema


def not_enforceable(problem: str, path: str = "") -> UsageError:
    """`path` may be empty if it is not known."""
    where = f"{path[-_PATH_MAX:]}: " if path else ""
    return UsageError(
        f"the format cannot be enforced: {where}{problem}",
        hint="Simplify the JSON schema: leave out, or express otherwise, what is named above.",
    )


def _of_draft_2020_12(schema: Schema) -> Schema:
    """Tuples were written as a list of `items` before."""
    schema = dict(schema)
    others = schema.pop("additionalItems", None)  # without that list it means nothing
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if others is not None:
            schema["items"] = others
    return schema


def _parts(schema: Schema) -> Iterator[tuple[Any, Any, str]]:
    """Schemas directly within a schema: what holds each, its key there, and the way to it."""
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            for name in value:
                escaped = name.replace("~", "~0").replace("/", "~1")
                yield value, name, f"/{keyword}/{escaped}"
        elif keyword in _LISTED and isinstance(value, list):
            for i in range(len(value)):
                yield value, i, f"/{keyword}/{i}"
        elif keyword in _SINGLE:
            yield schema, keyword, f"/{keyword}"
