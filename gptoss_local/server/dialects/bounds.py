"""Bounds the numbers in a request, where several dialects agree."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.formats.o200k import VOCAB_SIZE

MAX_INT = 2**31 - 1  # the limit of llama.cpp and our frames

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=VOCAB_SIZE)]

Temperature = Annotated[float, msgspec.Meta(le=100)]
"""Excludes infinity, and the "nan" that a text would become."""

ThinkBudget = Annotated[int, msgspec.Meta(ge=-1)]
"""Tokens of reasoning, after which the model answers; -1: any number."""

Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
"""Source: OpenAI's API reference."""

MAX_TOP_LOGPROBS = 20
TopCount = Annotated[
    int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_TOP_LOGPROBS})
]
"""The number of alternatives to a token; each dialect refuses others in its own words."""


def think_budget(*said: int | None) -> int | None:
    """Return the first budget that is said; None without one, or if it is unlimited."""
    return limit_tokens(next((each for each in said if each is not None), None))


def limit_tokens(n_tokens: int | None) -> int | None:
    """Return a limit that the engine understands; negative ones mean none."""
    return None if n_tokens is None or n_tokens < 0 else min(n_tokens, MAX_INT)


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return a positive number of the query; None if it is missing."""
    text = query.get(name, "")
    if text and not (text.isdecimal() and 0 < int(text) <= MAX_INT):
        raise UsageError(f"{name} must be a positive number")
    return int(text) if text else None
