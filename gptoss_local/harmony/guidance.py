"""The parts of llguidance that we use: grammars, JSON schemas, and its objections."""

import json
from typing import Any, Literal

import llguidance

# Printers of JSON write this between two values. With any amount, a model that is lost in a format
# would put whitespace there until its context is full.
_BYTES = llguidance.LLTokenizer("byte")
_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \t]{1,2}|\r?\n[ \t]{0,40}"}


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"json_schema": schema | {"x-guidance": _OPTIONS}}


def grammar(*entries: dict[str, Any]) -> str:
    """Join entries, each with its `name`; the first one is for the whole answer."""
    return json.dumps({"grammars": entries})


def problem(text: str) -> str:
    """Return llguidance's objection to a grammar; empty if it has none."""
    is_error, messages = llguidance.LLMatcher.validate_grammar_with_warnings(text)
    return " ".join(messages[0].split()) if is_error else ""


def schema_problem(schema: dict[str, Any]) -> str:
    return problem(grammar({"name": "top", **json_schema(schema)}))


def matches(syntax: Literal["lark", "regex"], definition: str, text: str) -> bool:
    """Return whether a text matches a grammar; none matches a broken one."""
    matcher = llguidance.LLMatcher(_BYTES, llguidance.grammar_from(syntax, definition))
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


def may_exist(problem: str) -> bool:
    """Return whether a value may satisfy a schema that has this problem."""
    return "Unsatisfiable" not in problem or "while processing" in problem
