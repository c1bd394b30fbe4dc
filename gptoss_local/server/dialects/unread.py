"""Fields of requests that this server does not read: refused, named in a warning, or harmless.

Source: the API references of OpenAI, Anthropic and Ollama, llama-server's README, vLLM's protocol.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from gptoss_local.errors import UsageError

_TEXT_ONLY = "gpt-oss writes text only."
_FORMAT = "Send a JSON schema as the API's own format."
_TOOLS = "Send tools and tool_choice instead."
_REFUSED = {  # an answer without it would be another kind of answer; with what to do instead
    "audio": _TEXT_ONLY,
    "background": "Stream the answer.",
    "best_of": "Send the request again for another answer.",
    "container": "Run code in the client.",
    "function_call": _TOOLS,
    "functions": _TOOLS,
    "grammar": _FORMAT,
    "guided_choice": _FORMAT,
    "guided_grammar": _FORMAT,
    "guided_json": _FORMAT,
    "guided_regex": _FORMAT,
    "json_schema": _FORMAT,
    "mcp_servers": "Connect to them in the client.",
    "modalities": _TEXT_ONLY,
    "n": "Send the request again for another answer.",
    "prompt": "Send its text as messages or input.",
    "structured_outputs": _FORMAT,
    "suffix": "gpt-oss fills no gaps.",
    "template": "gpt-oss has one prompt format.",
    "web_search_options": "Offer a search of your own as a tool.",
}
_HARMLESS = frozenset(
    (
        *("betas", "cache_control", "cache_prompt", "client_metadata", "continuous_usage_stats"),
        *("include", "include_obfuscation", "inference_geo", "metadata", "prediction"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "stream_options", "usage", "user"),
        *("user_profile_id", "f16_kv", "low_vram", "main_gpu", "num_batch", "num_gpu"),
        *("num_keep", "num_thread", "numa", "use_mlock", "use_mmap"),
    )
)
_AS_IT_IS: dict[str, tuple[Any, ...]] = {  # values that ask for nothing, besides empty ones
    "best_of": (1,),
    "enable_thinking": (True,),
    "enabled": (True,),
    "function_call": ("auto", "none"),
    "include_reasoning": (True,),
    "mirostat": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "penalize_newline": (True,),
    "repetition_penalty": (1,),
    "tfs_z": (1,),
    "typical_p": (1,),
    "verbosity": ("medium",),
}
_ASKS_WHEN_EMPTY = frozenset(
    (
        *("enable_thinking", "enabled", "include_reasoning", "parallel_tool_calls"),
        "web_search_options",
    )
)


def unread_fields(
    sent: Mapping[str, Any], body: type[msgspec.Struct], place: str = ""
) -> Iterator[str]:
    """Yield unread fields that might change an answer; UsageError for an impossible demand."""
    read = _fields(body)
    for name, value in sent.items():
        if name in read:
            inner = read[name]
            if inner is not None and isinstance(value, dict):
                yield from unread_fields(value, inner, f"{place}{name}.")
        elif name not in _HARMLESS and not _asks_for_nothing(name, value):
            if name in _REFUSED and not place:
                raise UsageError(f"{name} is not supported here", hint=_REFUSED[name])
            yield f"{place}{name}"


def _asks_for_nothing(name: str, value: Any) -> bool:
    is_empty = value is False or value in ("", [], {})
    return (is_empty and name not in _ASKS_WHEN_EMPTY) or value in _AS_IT_IS.get(name, ())


@cache
def _fields(body: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    return {
        field.encode_name: field.type
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        else None
        for field in msgspec.structs.fields(body)
    }
