"""llguidance, as far as the server needs it: what it makes of a grammar or a JSON schema."""

import functools
import json
from typing import Any

import llguidance

# What printers of JSON write between two values. With any amount, a model that is lost in a format
# would put whitespace there until its context is full.
_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \t]{1,2}|\r?\n[ \t]{0,40}"}


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a schema in a list of grammars."""
    return {"json_schema": schema | {"x-guidance": _OPTIONS}}


def grammar(*entries: dict[str, Any]) -> str:
    """Join entries, each with its `name`; the first one is what the answer is."""
    return json.dumps({"grammars": entries})


def problem(text: str) -> str:
    """Return why llguidance refuses a grammar; empty if it does not."""
    is_error, messages = llguidance.LLMatcher.validate_grammar_with_warnings(text)
    return " ".join(messages[0].split()) if is_error else ""


@functools.lru_cache(maxsize=10_000)
def is_empty(schema: str) -> bool:
    """Return whether llguidance finds that nothing satisfies a JSON schema."""
    entry = json_schema(json.loads(schema))
    return "Unsatisfiable" in problem(grammar({"name": "top", **entry}))
