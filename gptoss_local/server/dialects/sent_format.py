"""The format of an answer as requests send it, in any API's place and spelling.

Source: OpenAI's, Anthropic's and Ollama's API references, and llama.cpp's server.
"""

from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import JsonFormat

Place = tuple[str, ...]
_PLACES: tuple[Place, ...] = (
    *(("response_format",), ("text", "format"), ("text", "response_format"), ("format",)),
    *(("output_config", "format"), ("output_format",)),
    *(("json_schema",), ("guided_json",), ("structured_outputs", "json")),  # llama.cpp's, vLLM's
)
_OF_SCHEMAS = ("object", "array", "string", "number", "integer", "boolean", "null")


def put_format(sent: dict[str, Any], own: Place) -> dict[str, Any]:
    """Return a body with the format at the dialect's `own` place, wherever it was sent.

    Raises UsageError for different ones at two places.
    """
    found = {}
    for place in _PLACES:
        outer, *inner = place
        around = sent if not inner else sent.get(outer)
        value = around.get(place[-1]) if isinstance(around, dict) else None
        if value and isinstance(value, str | dict):
            found[place] = value
            rest = _without(around, place[-1])
            sent = sent | {outer: rest} if inner else rest
    if not found:
        return sent
    value, *others = found.values()
    if any(read_format(other) != read_format(value) for other in others):
        first, second = list(map(".".join, found))[:2]
        raise UsageError(
            f"{first} and {second} ask for different formats", hint=f"Send {'.'.join(own)} alone."
        )
    around = sent.get(own[0])
    inside = around if isinstance(around, dict) else {}
    return sent | {own[0]: inside | {own[1]: value} if own[1:] else value}


def _without(around: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in around.items() if key != name}


def read_format(sent: str | dict[str, Any]) -> JsonFormat | None:
    """Return a format: a named type with or without a schema, a schema alone, or "json"."""
    if isinstance(sent, str):
        if sent not in ("", "json"):
            expected = 'expected "json" or a valid JSON Schema object'
            raise UsageError(f'invalid format: "{sent}"; {expected}')
        return JsonFormat() if sent else None
    flat = flat_format(sent)
    schema = flat.get("schema")
    match flat.get("type"):
        case "text":
            return None
        case "json_object" if schema is None and "json_schema" not in flat:
            return JsonFormat()
        case "json_object" | "json_schema" as kind:
            if not isinstance(schema, dict):
                raise UsageError(f"the schema of a format of type {kind} must be an object")
            name, about = flat.get("name"), flat.get("description")
            return JsonFormat(schema, str(name or "response"), str(about or ""))
        case str(kind) if kind not in _OF_SCHEMAS:
            raise UsageError(f"unknown format type '{kind}'; use text, json_object or json_schema")
    return JsonFormat(sent)


def flat_format(sent: dict[str, Any]) -> dict[str, Any]:
    """Return a format as Responses have it: nothing is nested in `json_schema`."""
    nested = sent.get("json_schema")
    if isinstance(nested, dict) and "schema" in nested:
        sent = _without(sent, "json_schema") | nested
    return {"type": "json_schema"} | sent if "schema" in sent or nested else sent
