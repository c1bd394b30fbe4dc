"""Repairs a list of tools before the SDK reads it, which refuses the list if one tool is wrong.

What cannot be declared of the arguments is left out, and the description says so. Schemas of
results are dropped: the model can read any result.
"""

from typing import Any

import msgspec

_TEXTS = ("title", "description")
MAX_SCHEMA_BYTES = 16_000  # about 4,000 tokens
_NO_OBJECT = "[Which arguments it takes is not known: their schema is not one of an object.]"
_TOO_LONG = "[Which arguments it takes is not known: their schema is too long.]"


def repair_list(result: dict[str, Any]) -> list[str]:
    """Change the result of `tools/list` in place; any other one stays as it is.

    Returns:
        What was left out, for the log.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return []
    named = [each for each in tools if isinstance(each, dict) and isinstance(each.get("name"), str)]
    result["tools"] = [_repaired(tool) for tool in named]
    n_others = len(tools) - len(named)
    return [f"(left out {n_others} tools without a name)"] if n_others else []


def _repaired(tool: dict[str, Any]) -> dict[str, Any]:
    repaired = {key: tool[key] for key in _TEXTS if isinstance(tool.get(key), str)}
    schema: dict[str, Any] = tool.get("inputSchema") or {}
    note = "" if _is_of_object(schema) else _NO_OBJECT
    if not note and len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        note = _TOO_LONG
    if note:
        repaired["description"] = f"{note}\n{repaired.get('description', '')}".strip()
        schema = {}
    return {"name": tool["name"], **repaired, "inputSchema": {**schema, "type": "object"}}


def _is_of_object(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type", "object") == "object"
        and isinstance(schema.get("properties", {}), dict)
        and isinstance(schema.get("required", []), list)
    )
