"""Conversations that the shipped nano answers token for token, greedily."""

import json
from pathlib import Path
from typing import Any

CONVERSATIONS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("golden_conversations.json").read_bytes()
)
AGENT = "You are a coding agent. Use the tools to do what the user asks. Be brief."
SHELL: dict[str, Any] = {
    "name": "run_command",
    "description": "Run a shell command.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command"}},
        "required": ["command"],
    },
}
"""A tool as clients declare it, for which nano makes calls."""
