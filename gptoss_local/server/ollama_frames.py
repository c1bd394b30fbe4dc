"""Answer bodies of Ollama's API: the frames of chat and generate, and errors.

Source: Ollama's api/types.go (ChatResponse, GenerateResponse, Metrics).
"""

import functools
import time
from typing import Any, Literal

import msgspec

from gptoss_local.chat import Done, ToolCall


class Metrics(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The figures of a last frame, durations in ns; zeros are left out."""

    done_reason: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


class AnswerMessage(msgspec.Struct, omit_defaults=True):
    role: Literal["assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[dict[str, Any]] = []


class ChatFrame(Metrics, kw_only=True):
    model: str
    created_at: str
    message: AnswerMessage
    done: bool


class GenerateFrame(Metrics, kw_only=True):
    model: str
    created_at: str
    response: str
    thinking: str = ""
    done: bool
    context: list[int] = []


class ErrorFrame(msgspec.Struct, omit_defaults=True):
    """Ollama's error body, and beside it our hint and the class name in `gptoss_local.errors`."""

    error: str
    hint: str = ""
    code: str = ""


def metrics(done: Done, load_ns: int, start_ns: int) -> dict[str, Any]:
    """Fields of Metrics for an answer that began at `start_ns` of the monotonic clock."""
    return {
        "done_reason": "length" if done.reason == "length" else "stop",
        "total_duration": time.monotonic_ns() - start_ns,
        "load_duration": load_ns,
        "prompt_eval_count": done.usage.n_prompt,
        "prompt_eval_duration": done.usage.prefill_ns,
        "eval_count": done.usage.n_generated,
        "eval_duration": done.usage.decode_ns,
    }


def wire_tool_call(call: ToolCall, index: int) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": call.arguments}
    return {"id": call.id, "function": function}


def now() -> str:
    """The current time in UTC as RFC 3339 with nanoseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds:09d}Z"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    """PERF: every token has a timestamp, and formatting costs ten times the lookup."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
