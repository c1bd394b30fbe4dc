"""What OpenAI's dialects share: text parts, effort, formats, sampling, usage, errors.

Source: OpenAI's API reference (Chat Completions, Responses), and Ollama's openai/openai.go for what
its clients have come to rely on.
"""

import secrets
import time
from typing import Annotated, Any

import msgspec

from gptoss_local.chat import Done, JsonFormat, Tool
from gptoss_local.errors import GptOssError, UsageError
from gptoss_local.server.bounds import MAX_INT, Penalty, Temperature, TokenId
from gptoss_local.types import Effort, Penalties, SamplingParams

LogitBias = Annotated[
    dict[TokenId, Annotated[float, msgspec.Meta(ge=-100, le=100)]],
    msgspec.Meta(max_length=300, extra_json_schema={"propertyNames": {"pattern": "^[0-9]+$"}}),
]

_EFFORTS: dict[str, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "ultra": "high",
    "max": "high",
}
_CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "refusal"))


class Part(msgspec.Struct):
    """A piece of content in either dialect."""

    type: str = "text"
    text: str = ""
    refusal: str = ""


class Reasoning(msgspec.Struct):
    effort: str = ""
    summary: str = ""


class Sampling(msgspec.Struct, kw_only=True):
    """Sampling fields of every OpenAI body."""

    temperature: Temperature = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: LogitBias = msgspec.field(default_factory=dict)

    @property
    def penalties(self) -> Penalties | None:
        """None if no setting has an effect."""
        presence, frequency = self.presence_penalty, self.frequency_penalty
        return Penalties(presence=presence, frequency=frequency) if presence or frequency else None

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(0, min(self.top_k, MAX_INT)),
            min_p=self.min_p,
            seed=None if self.seed is None else self.seed & MAX_INT,
            penalties=self.penalties,
            logit_bias=tuple(sorted((t, bias) for t, bias in self.logit_bias.items() if bias)),
        )


def join_parts(content: str | list[Part], *, is_result: bool = False) -> str:
    """Text of a message, or of a tool's result.

    Raises UsageError for anything that is no text; in a result it is only noted.
    """
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if part.type in _TEXT_PARTS:
            texts.append(part.text or part.refusal)
        elif is_result:
            texts.append(left_out(part.type))
        else:
            raise UsageError(
                f"gpt-oss reads text only, and the request has a part of type '{part.type}'"
            )
    return "".join(texts)


def left_out(kind: str) -> str:
    """What the model reads where a tool returned something that is no text.

    An agent cannot take a result back, so a refusal would end its conversation for good.
    """
    return f"[{kind} left out: only text can be read here]"


def parse_effort(value: str) -> tuple[Effort, bool]:
    """Effort and whether to reason at all; empty means the default."""
    effort = value.lower()
    if effort == "none":
        return "low", False
    if effort and effort not in _EFFORTS:
        allowed = ", ".join(f'"{name}"' for name in ("none", *_EFFORTS))
        raise UsageError(f'invalid reasoning value: "{value}" (must be one of {allowed})')
    return _EFFORTS.get(effort, "medium"), True


def parse_format(wanted: dict[str, Any], schema: Any) -> JsonFormat | None:
    """`response_format` or `text.format`; `schema` is where the dialect keeps it."""
    match wanted.get("type", "text"):
        case "text":
            return None
        case "json_object":
            return JsonFormat()
        case "json_schema" if isinstance(schema, dict):
            told = wanted.get("json_schema", wanted)
            name, about = told.get("name"), told.get("description")
            return JsonFormat(schema, str(name or "response"), str(about or ""))
        case "json_schema":
            raise UsageError("a format of type json_schema needs a schema that is an object")
        case other:
            raise UsageError(f"unknown format type '{other}'; use text, json_object or json_schema")


def limit_tokens(n_tokens: int | None) -> int | None:
    """A limit the engine understands; negative ones mean none."""
    return None if n_tokens is None or n_tokens < 0 else min(n_tokens, MAX_INT)


def offered(tools: list[Tool], choice: str | dict[str, Any]) -> dict[str, Any]:
    """Fields of a ChatRequest for `tools` and `tool_choice`.

    Named tools come as `{"type": "function", "name": …}`, nested under `function` in Chat
    Completions.
    """
    names = [tool.name for tool in tools]
    wanted: tuple[str, ...]
    match choice:
        case "none":
            return {"tools": ()}
        case "auto":
            wanted = ()
        case "required" | "any":
            wanted = tuple(names)
        case (
            {"type": "function" | "tool" | "custom", "name": str(name)}
            | {"function": {"name": str(name)}}
            | {"custom": {"name": str(name)}}
        ):
            if name not in names:
                raise UsageError(f"tool_choice names the tool '{name}', which is not in tools")
            wanted = (name,)
        case {"type": "allowed_tools", **listed}:
            return _allowed(tools, listed.get("allowed_tools", listed))
        case {"type": str(kind)} if kind != "function":
            return offered(tools, kind if kind in ("none", "any", "required") else "auto")
        case _:
            raise UsageError("tool_choice must be none, auto, required or name a function")
    return {"tools": tuple(tools), "must_call": wanted}


def _allowed(tools: list[Tool], choice: Any) -> dict[str, Any]:
    """Fields for a `tool_choice` that lists tools, of which one may or must be called."""
    match choice:
        case {"mode": "auto" | "required" as mode, "tools": list(listed)}:
            names = {_name(entry) for entry in listed}
        case _:
            raise UsageError("tool_choice of type allowed_tools needs mode and tools")
    allowed = [tool for tool in tools if tool.name in names]
    if not allowed:
        raise UsageError("tool_choice allows no tool that is in tools")
    if mode == "auto":
        return {"tools": tuple(allowed)}
    return {"tools": tuple(tools), "must_call": tuple(tool.name for tool in allowed)}


def _name(entry: Any) -> str:
    """The name of a tool in a list, where it may be nested as in Chat Completions."""
    match entry:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}:
            return name
        case {"name": str(name)}:
            return name
    return ""


def custom_tool(name: str, description: str, form: dict[str, Any]) -> Tool:
    """A tool that takes free text, as a function with one argument; `form` may hold a grammar."""
    grammar = form.get("grammar", form)  # nested in Chat Completions
    if isinstance(grammar, dict) and isinstance(grammar.get("definition"), str):
        syntax = grammar.get("syntax", "")
        description += f"\n\nThe input keeps to this {syntax} grammar:\n{grammar['definition']}"
    return Tool(name, description, _CUSTOM_PARAMETERS)


def custom_input(arguments: dict[str, Any]) -> str:
    """The text that a call of a custom tool was given, under whatever name the model put it."""
    texts = [arguments["input"]] if "input" in arguments else list(arguments.values())
    if len(texts) == 1 and isinstance(texts[0], str):
        return texts[0]
    return msgspec.json.encode(arguments).decode()


def usage(done: Done, prompt: str, completion: str) -> dict[str, Any]:
    """Token counts; Chat Completions and Responses only name them differently."""
    counts = done.usage
    return {
        f"{prompt}_tokens": counts.n_prompt,
        f"{prompt}_tokens_details": {"cached_tokens": counts.n_cached},
        f"{completion}_tokens": counts.n_generated,
        f"{completion}_tokens_details": {"reasoning_tokens": done.n_reasoning},
        "total_tokens": counts.n_prompt + counts.n_generated,
    }


def error_body(error: GptOssError) -> dict[str, Any]:
    """OpenAI's error shape; our hint goes into the message, as clients show nothing else."""
    text = f"{error.message}. {error.hint}" if error.hint else error.message
    return error_shape(text, error.http_status, _CODES.get(type(error).__name__))


def error_shape(text: str, status: int, code: str | None = None) -> dict[str, Any]:
    default = "invalid_request_error" if status < 500 else "api_error"
    kind = "not_found_error" if status == 404 else default
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


_CODES = {
    "ModelNotFoundError": "model_not_found",
    "ResponseNotFoundError": "not_found",
    "ContextOverflowError": "context_length_exceeded",
}


def new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(12)}"


def now_s() -> int:
    return int(time.time())
