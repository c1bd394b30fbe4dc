"""What a declared tool can do for the user, in the words of the data, not of its schema."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gptoss_local.harmony.message import Message, Tool, ToolRequest


@dataclass(frozen=True, slots=True)
class Ability:
    """A tool and how a request for its role becomes a call.

    Attributes:
        role: "shell", "read", "weather", ...: what a branch asks for.
        fill: Slot values of the role (e.g. `{"command": "ls"}`) -> the call's arguments, in the
            order of the schema's properties.
    """

    role: str
    tool: Tool
    fill: Callable[[Mapping[str, object]], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Toolset:
    """Declared tools in order, and those among them that branches may use, by role."""

    tools: tuple[Tool, ...]
    abilities: dict[str, Ability]


def arguments_json(arguments: Mapping[str, object]) -> str:
    """Spell arguments as the model does."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def call_and_result(
    name: str, arguments: dict[str, object], result: str, *, reasoning: str = ""
) -> tuple[Message, Message]:
    """An assistant's call in the history and the message that answers it."""
    call = Message(
        role="assistant", reasoning=reasoning, tool_calls=(ToolRequest(name, arguments),)
    )
    return call, Message(role="tool", content=result, tool_name=name)
