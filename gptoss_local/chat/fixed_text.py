"""How much text a schema fixes character by character.

Where only one text can follow, llguidance looks ahead to its end before each token, in time that
grows with the square of the length, and keeps Python's lock meanwhile: 50 ms for 10,000 characters,
5 s for 100,000, no end in sight for the million of `(a{1000}){1000}`. All other answers wait.
"""

import json
import re
from typing import Any

FIXED_MAX = 20_000
"""Characters of one schema: what is more is refused. PERF: 0.2 s."""

# An escape, a class, what opens and closes a group, a repetition, an alternative, or a character.
_TOKEN = re.compile(
    r"(?P<one>\\[pPxuU]\{[^}]*\}|\\.)|(?P<choice>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?[^:)]*:)?)|(?P<close>\))|(?P<count>\{(?P<least>\d+)(?:,\d*)?\}|[?*+])"
    r"|(?P<or>\|)|(?P<other>.)",
    re.DOTALL,
)


def fixed_length(schema: dict[str, Any]) -> int:
    """Characters that the keywords of a schema itself fix, at most; its parts have their own."""
    n = 0
    if "const" in schema:
        n += len(json.dumps(schema["const"]))
    if isinstance(values := schema.get("enum"), list):
        n += max((len(json.dumps(value)) for value in values), default=0)
    if isinstance(pattern := schema.get("pattern"), str):
        n += pattern_length(pattern)
    if isinstance(patterns := schema.get("patternProperties"), dict):
        n += sum(map(pattern_length, patterns))
    return n


def pattern_length(pattern: str) -> int:
    """Characters that a regular expression fixes, at most: each as often as it must be there."""
    branches, last = [0], 0  # lengths of the alternatives of this group, and of the last part
    outer: list[list[int]] = []
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                outer.append(branches)
                branches, last = [0], 0
            case "close" if outer:
                last, branches = max(branches), outer.pop()
                branches[-1] += last
            case "count":
                least = int(token["least"] or token[0] == "+")
                branches[-1] += last * (least - 1)
                last *= least
            case "or":
                branches.append(0)
                last = 0
            case kind:
                last = int(kind != "choice")
                branches[-1] += last
    return max(branches)
