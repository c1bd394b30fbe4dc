"""The names that each kind of engine gives to things: one table for requests and answers.

Sources: `protocol.py` in vLLM's entrypoints/openai/completion, SGLang's entrypoints/openai,
TensorRT-LLM's serve (`openai_protocol.py`), Dynamo's `nvext.rs`; NIM for LLMs 2 is vLLM.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gptoss_local.models.catalog import UpstreamKind

N_CTX = 131_072
"""Tokens of context that gpt-oss was trained for."""

Place = tuple[str | int, ...]
"""Keys of objects and indices of arrays that lead to a value."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The particulars of one kind.

    Attributes:
        asks: Fields of a request that make ids, or the stop token, arrive.
        ids: Where a chunk has its new token ids.
        stop: Where the last chunk may have the token that ended the answer.
        health: The path that answers while the engine is well.
        has_logprobs: Whether log-probabilities come with token ids.
        closes: Whether it closes a connection after a stream, though it says that it stays open.
        has_salt: Whether it keeps prefixes apart by a `cache_salt`.
        priority: The fields for one of our priorities; None: it has none.
        since: What to say where text arrives without ids.
    """

    asks: dict[str, Any]
    ids: Place = ("choices", 0, "token_ids")
    stop: Place = ("choices", 0, "stop_reason")
    path: str = "/v1/completions"
    health: str = "/health"
    has_logprobs: bool = False
    closes: bool = False
    has_salt: bool = False
    priority: Callable[[int], dict[str, Any]] | None = None
    since: str


_NVEXT = {"extra_fields": ["completion_token_ids", "stop_reason"]}
_VLLM = Kind(
    asks={"return_token_ids": True, "skip_special_tokens": False},
    has_logprobs=True,
    has_salt=True,
    priority=lambda n: {"priority": -n},  # the lowest is first
    since="vLLM sends ids since 0.10.2.",
)

KINDS: dict[UpstreamKind, Kind] = {
    "vllm": _VLLM,
    "nim": msgspec.structs.replace(
        _VLLM, health="/v1/health/ready", since="NIM for LLMs sends ids since 2.0."
    ),
    "sglang": Kind(
        asks={"return_token_ids": True, "skip_special_tokens": False, "no_stop_trim": True},
        stop=("choices", 0, "matched_stop"),
        has_salt=True,
        priority=lambda n: {"priority": n},
        since="SGLang's /v1/completions sends ids since the middle of 2026.",
    ),
    "tensorrt-llm": Kind(  # refuses fields that it does not know
        asks={"detokenize": False, "include_stop_str_in_output": True},
        priority=lambda n: {"priority": max(0.0, 0.5 + n / 200)},  # 1 is first
        since="trtllm-serve sends ids where it does not detokenize.",
    ),
    "dynamo": Kind(  # refuses fields that it does not know
        asks={"nvext": _NVEXT},
        ids=("nvext", "completion_token_ids"),
        stop=("nvext", "stop_reason"),
        priority=lambda n: {"nvext": _NVEXT | {"agent_hints": {"priority": n}}},
        since="Dynamo sends ids since 1.6.",
    ),
    "llama-server": Kind(
        asks={"return_tokens": True, "cache_prompt": True},
        ids=("tokens",),
        stop=(),
        path="/completion",
        has_logprobs=True,
        closes=True,
        since="Use a llama-server of 2025 or later.",
    ),
}
