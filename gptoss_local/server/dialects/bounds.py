"""Bounds the numbers in a request, where several dialects agree."""

from typing import Annotated

import msgspec

from gptoss_local.formats.o200k import VOCAB_SIZE

MAX_INT = 2**31 - 1  # what llama.cpp and our frames can carry

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=VOCAB_SIZE)]

Temperature = Annotated[float, msgspec.Meta(le=100)]
"""No infinity, and no "nan", of which text in place of a number would make one."""

Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
"""Bounds of `presence_penalty` and `frequency_penalty`. Source: OpenAI's API reference."""

MAX_TOP_LOGPROBS = 20
TopCount = Annotated[
    int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_TOP_LOGPROBS})
]
"""The number of alternatives to a token; each dialect refuses others in its own words."""
