"""Repairs a list of tools before the SDK reads it, which refuses the list if one tool is wrong.

Schemas of results are dropped: the model can read any result.
"""

from typing import Any

_TEXTS = ("title", "description")
_NOTE = "[The server does not say which arguments it takes: its schema is not one of an object.]"


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
    if not _is_of_object(schema):
        repaired["description"] = f"{repaired.get('description', '')}\n{_NOTE}".strip()
        schema = {}
    return {"name": tool["name"], **repaired, "inputSchema": {**schema, "type": "object"}}


def _is_of_object(schema: Any) -> bool:
    return (
        isinstance(schema, dict)
        and schema.get("type", "object") == "object"
        and isinstance(schema.get("properties", {}), dict)
        and isinstance(schema.get("required", []), list)
    )
