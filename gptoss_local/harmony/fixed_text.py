"""Measures how much text a schema fixes character by character.

Where only one text can follow, llguidance looks ahead to its end before each token, in time that
grows with the square of the length, and holds Python's lock all that time: 50 ms for 10,000
characters, 5 s for 100,000, without end for the million of `(a{1000}){1000}`. All other answers
wait.
"""

import json

from gptoss_local.harmony.format_schema import Enforced
from gptoss_local.harmony.regex_algebra import Alt, And, Chars, Node, Repeat, Seq
from gptoss_local.harmony.schema_document import Schema, all_schemas

FIXED_MAX = 20_000
"""Characters of one schema: what is more is refused. PERF: 0.2 s."""


def fixed_length(enforced: Enforced) -> int:
    """Return how many characters a schema fixes, at most."""
    return sum(_own_length(schema, enforced) for schema in all_schemas(enforced.schema))


def _own_length(schema: Schema, enforced: Enforced) -> int:
    """Count what the keywords of a schema fix; its parts have their own."""
    n = len(json.dumps(schema["const"])) if "const" in schema else 0
    n += max((len(json.dumps(value)) for value in schema.get("enum", ())), default=0)
    expressions = [*schema.get("patternProperties", ())]
    if "pattern" in schema:
        expressions.append(schema["pattern"])
    return n + sum(language_length(enforced.languages[text]) for text in expressions)


def language_length(node: Node) -> int:
    """Count characters without a choice, at most: each as often as it must be there."""
    match node:
        case Chars(((low, high),), ()):
            return int(low == high)
        case Seq(parts):
            return sum(map(language_length, parts))
        case Alt(parts) | And(parts):
            return max(map(language_length, parts), default=0)
        case Repeat(part, least, _):
            return least * language_length(part)
        case _:
            return 0
