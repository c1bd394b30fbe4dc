"""Server-sent events as the specification has them, for tests that look below an SDK."""

import json
from typing import Any


def events(text: str) -> list[tuple[str, Any]]:
    """Name and data of each event of a complete stream; data that is no JSON stays text."""
    assert text.endswith("\n\n")
    return [_event(block) for block in text.split("\n\n")[:-1] if not block.startswith(":")]


def _event(block: str) -> tuple[str, Any]:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    assert fields.keys() <= {"event", "data"}, block
    data = fields["data"]
    return fields.get("event", ""), data if data == "[DONE]" else json.loads(data)
