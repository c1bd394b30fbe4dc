"""Does a value satisfy a JSON schema? The keywords our tests use, told apart from llguidance."""

import re
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_KNOWN = {
    "type", "enum", "const", "anyOf", "$ref", "$defs", "properties", "required", "minimum",
    "additionalProperties", "items", "minItems", "maxItems", "pattern", "maxLength", "maximum",
}  # fmt: skip


def satisfies(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None) -> bool:
    """Raises KeyError for a keyword that it does not know."""
    root = root or schema
    if unknown := set(schema) - _KNOWN:
        raise KeyError(f"this checker does not know {unknown}")
    if "$ref" in schema:
        return satisfies(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "anyOf" in schema:
        return any(satisfies(value, option, root) for option in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    kind = schema.get("type")
    if kind and not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, bool):
        return kind in (None, "boolean")
    return _of_its_type(value, schema, root)


def _of_its_type(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    match value:
        case dict():
            known = schema.get("properties", {})
            others = schema.get("additionalProperties", True)
            return set(schema.get("required", [])) <= set(value) and all(
                satisfies(item, known[key], root) if key in known else others is True
                for key, item in value.items()
            )
        case list():
            n_min, n_max = schema.get("minItems", 0), schema.get("maxItems", len(value))
            items = schema.get("items", {})
            return n_min <= len(value) <= n_max and all(satisfies(v, items, root) for v in value)
        case str():
            n_max = schema.get("maxLength", len(value))
            return len(value) <= n_max and bool(re.search(schema.get("pattern", ""), value))
        case int() | float():
            return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
        case _:
            return True
