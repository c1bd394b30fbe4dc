"""The model that a request names, with its defaults; the request's own fields win.

Source: Ollama's server/routes.go (ChatHandler, GenerateHandler).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from starlette.requests import Request

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.off_loop import Check
from gptoss_local.base.settings import Settings
from gptoss_local.harmony import (
    AnswerNow,
    ChatRequest,
    Message,
    RawRequest,
    Vocabulary,
    n_prompt_tokens,
    prompt_tokens,
)
from gptoss_local.models.store import ModelDefaults, ModelEntry, find_model
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller, owner_of
from gptoss_local.server.body import convert, read_body, translate
from gptoss_local.server.dialects.history import SentMessage
from gptoss_local.server.dialects.options import Options
from gptoss_local.server.dialects.sent_format import put_format
from gptoss_local.server.dialects.sent_tools import is_of_servers
from gptoss_local.server.request_id import request_id_of
from gptoss_local.server.streaming import while_connected

_TEXT_ONLY = "gpt-oss reads and writes text only"
_FORMAT = "send a JSON schema as {format}"
_TOOLS = "send tools and tool_choice instead"
_REFUSED = {  # an answer without it would be another one; with what to do instead
    "audio": _TEXT_ONLY,
    "background": "stream the answer",
    "best_of": "send the request again for another answer",
    "compaction": "ask for a summary as a message",
    "container": "run code in the client",
    "conversation": "send previous_response_id, or the whole conversation",
    "function_call": _TOOLS,
    "functions": _TOOLS,
    "grammar": _FORMAT,
    "guided_choice": _FORMAT,
    "guided_grammar": _FORMAT,
    "guided_regex": _FORMAT,
    "images": _TEXT_ONLY,
    "mcp_servers": "connect to them in the client",
    "modalities": _TEXT_ONLY,
    "n": "send the request again for another answer",
    "previous_response_id": "send the whole conversation",
    "prompt": "send its text as messages or input",
    "structured_outputs": _FORMAT,
    "suffix": "gpt-oss fills no gaps",
    "template": "gpt-oss has one prompt format",
    "web_search_options": "offer a search of your own as a tool",
}
# Wishes that change an answer, by their names in different APIs
_SPELLINGS: tuple[tuple[str, ...], ...] = (
    ("instructions", "system"),
    ("input", "messages"),
    ("max_output_tokens", "max_completion_tokens", "max_tokens", "num_predict"),
    ("stop_sequences", "stop"),
    ("reasoning_effort", "thinking", "reasoning", "think", "enable_thinking", "output_config"),
    ("think_budget", "reasoning_budget", "thinking_budget_tokens"),
    ("repeat_penalty", "repetition_penalty"),
    ("response_format", "format", "output_format"),
    *((name,) for name in (
        *("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "logit_bias"),
        *("frequency_penalty", "logprobs", "top_logprobs", "tools", "tool_choice", "raw", "text"),
        *("parallel_tool_calls", "verbosity", "context", "lora", "ignore_eos", "min_tokens"),
        *("mirostat", "tfs_z", "typical_p", "dry_multiplier", "xtc_probability"),
    )),
)  # fmt: skip
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
_IN_ITEMS = _HARMLESS | {"annotations", "citations", "id", "index", "logprobs", "status", "type"}
_NAMELESS = ("assistant", "developer", "system")  # their messages' names are not in a prompt
_AS_IT_IS: dict[str, tuple[Any, ...]] = {  # values that ask for nothing, besides empty ones
    "enable_thinking": (True,),
    "function_call": ("auto", "none"),
    "include_reasoning": (True,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "penalize_newline": (True,),
    "context": ("auto", "current_turn"),  # of reasoning
    "seed": (-1,),
    "think": (True,),
    "thinking": (True, {"type": "enabled"}, {"type": "adaptive"}),
    "tool_choice": ("auto", "none", {"type": "auto"}, {"type": "none"}),
    "verbosity": ("medium",),
    **dict.fromkeys(("best_of", "n", "repeat_penalty", "repetition_penalty", "temperature"), (1,)),
    **dict.fromkeys(("tfs_z", "top_p", "typical_p"), (1,)),
    **dict.fromkeys(("dry_multiplier", "frequency_penalty", "min_p", "min_tokens"), (0,)),
    **dict.fromkeys(("mirostat", "presence_penalty", "top_k", "xtc_probability"), (0,)),
}
_ASKS_WHEN_EMPTY = frozenset(
    (
        *("enable_thinking", "include_reasoning", "parallel_tool_calls", "think"),
        "web_search_options",
    )
)


def unread_fields(
    sent: Mapping[str, Any],
    body: type[msgspec.Struct],
    place: str = "",
    *,
    original: Mapping[str, Any] | None = None,
    is_item: bool = False,
) -> Iterator[str]:
    """Yield unread fields of unknown meaning; UsageError for one that changes an answer.

    `original`: `sent` before it was prepared. Items of lists are often history, which is not
    refused.
    """
    read = _fields(body)
    if str(sent.get("role")).lower() in _NAMELESS:
        read = {field: inner for field, inner in read.items() if field != "name"}
    for name, value in sent.items():
        if name in read:
            inner, path = read[name], f"{place}{name}"
            if inner is not None and isinstance(value, dict):
                yield from unread_fields(value, inner, f"{path}.", is_item=is_item)
            elif inner is not None and isinstance(value, list):
                for item in (each for each in value if isinstance(each, dict)):
                    if not is_of_servers(str(item.get("type", ""))):
                        yield from unread_fields(item, inner, f"{path}[].", is_item=True)
        elif name not in (_IN_ITEMS if is_item else _HARMLESS) and not _asks_for_nothing(
            name, value
        ):
            foreign = name == "options" and isinstance(value, dict)  # Ollama's
            for wish, wanted in value.items() if foreign else [(name, value)]:
                if is_item or _asks_for_nothing(wish, wanted):
                    continue
                if (hint := _instead(wish, wanted, original or sent, body)) is not None:
                    said = f"{place}{name}.{wish}" if foreign else f"{place}{name}"
                    raise UsageError(f"{said} is not supported here{hint}")
            yield f"{place}{name}"


def _instead(
    name: str, value: Any, sent: Mapping[str, Any], body: type[msgspec.Struct]
) -> str | None:
    """Return what to do instead of sending an unread field; None: it may stay unread."""
    if name in _REFUSED:
        return f": {_REFUSED[name].format(format='.'.join(getattr(body, 'FORMAT', ('tools',))))}"
    read = _fields(body)
    for names in _SPELLINGS:
        if name in names:
            own = {n: sent.get(n) for n in names if n in read}
            if "options" in read:
                inner = sent.get("options") or {}
                own |= {f"options.{n}": inner.get(n) for n in names if n in _fields(Options)}
            if value in own.values():  # one body for several APIs
                return None
            if not own and name in ("system", "instructions") and "messages" in read:
                own = {"a message of the role system": None}
            return f": send it as {' or '.join([*own][:2])}" if own else ""
    return None


def _put_options(sent: dict[str, Any], body: type[msgspec.Struct]) -> dict[str, Any]:
    """Move options of an Ollama body that are outside `options` into it."""
    read, known, inner = _fields(body), _fields(Options), sent.get("options", {})
    if "options" not in read or not isinstance(inner, dict):
        return sent
    own = {name: n for names in _SPELLINGS for n in names if n in known for name in names}
    own |= {name: name for name in known}
    moved = [n for n in sent if n in own and n not in read and own[n] not in inner]
    rest = {name: value for name, value in sent.items() if name not in moved}
    return rest | {"options": {own[n]: sent[n] for n in moved} | inner}


def _asks_for_nothing(name: str, value: Any) -> bool:
    is_empty = value is False or value in ("", [], {})
    return (is_empty and name not in _ASKS_WHEN_EMPTY) or value in _AS_IT_IS.get(name, ())


@cache
def _fields(body: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    known = {f.encode_name: _struct_in(f.type) for f in msgspec.structs.fields(body)}
    return known | getattr(body, "READ_LATER", {})


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field or the items of its list are made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_struct_in, get_args(kind))), None)


Body = TypeVar("Body", bound=msgspec.Struct)
RequestT = TypeVar("RequestT", ChatRequest, RawRequest, ChatRequest | RawRequest)

_BILLING = re.compile(r"x-anthropic-billing-header:(?:[ \t]*[\w.-]+=[^;\n]*;?)*\s*")
_RETENTION = "prompt_cache_retention"
_KEPT = {None: False, "24h": False, "in_memory": True, "in-memory": True}  # as OpenAI's SDKs send
_INSTEAD = {"max_tokens": "max_completion_tokens"}  # fields that take the place of another


def warn(request: Request, what: str, names: Iterable[str]) -> None:
    if named := ", ".join(sorted(set(names))):
        earlier = getattr(request.state, "warning", "")
        request.state.warning = f"{earlier}; {what}: {named}".removeprefix("; ")


async def read_named(request: Request, body_type: type[Body]) -> Body:
    """Read a body that asks no model; unread fields are named in a header, as always."""

    def named(sent: dict[str, Any]) -> dict[str, Any]:
        warn(request, "ignored", unread_fields(sent, body_type, is_item=True))
        return sent

    return await read_body(request, body_type, named)


def manager_of(request: Request) -> ModelManager:
    manager: ModelManager = request.app.state.manager
    return manager


def settings_of(request: Request) -> Settings:
    return manager_of(request).settings


class NamedModel:
    """The model of one request; `names` maps options to `/v1`'s fields (None: Ollama's body)."""

    def __init__(self, request: Request, names: Mapping[str, str] | None = None) -> None:
        self._request = request
        self._names = names
        self._found: ModelEntry | GptOssError | None = None
        self._is_flex = False  # OpenAI's word for requests that can wait
        self._in_memory = False
        self.manager = manager_of(request)

    async def read(
        self,
        body_type: type[Body],
        prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda sent: sent,
    ) -> Body:
        """Read the body, changed by `prepare`, with the model's options; warn of unread fields."""

        def fill_in(sent: dict[str, Any]) -> dict[str, Any]:
            if own := getattr(body_type, "FORMAT", None):
                sent = _put_options(put_format(sent, own), body_type)
            prepared = prepare(sent)
            warn(self._request, "ignored", unread_fields(prepared, body_type, original=sent))
            return self._fill_in(prepared)

        return await read_body(self._request, body_type, fill_in)

    @property
    def entry(self) -> ModelEntry:
        """Return the model, after `read`. Raises ModelNotFoundError, ModelLoadError."""
        assert self._found is not None
        if isinstance(self._found, GptOssError):
            raise self._found
        return self._found

    async def vocabulary(self) -> Vocabulary:
        return await self.manager.vocabulary(self.entry)

    async def n_tokens(self, asked: ChatRequest) -> int:
        """Count the tokens of a prompt, without loading the model."""
        counting = n_prompt_tokens(asked, await self.vocabulary())
        return await while_connected(self._request, counting)

    @property
    def _loaded(self) -> list[LoadedModel | RemoteModel]:
        """Return the models that can answer now, the last used last."""
        return [*self.manager.remote, *self.manager.loaded]

    @property
    def n_ctx(self) -> int | None:
        """Return the context of the model if it is loaded."""
        found = (m.engine.loaded.n_ctx for m in self._loaded if m.entry.name == self.entry.name)
        return next(found, None)

    async def renderer(self) -> Callable[[ChatRequest, Check], list[int]]:
        """Return a function that makes the very prompt of a request; it is slow."""
        vocabulary = await self.vocabulary()
        n_ctx, n_ctx_train = self.n_ctx, await self.manager.n_ctx_train(self.entry)

        def render(asked: ChatRequest, check: Check) -> list[int]:
            return prompt_tokens(
                asked, vocabulary, n_ctx=n_ctx, n_ctx_train=n_ctx_train, check=check
            )

        return render

    def warn_of(self, kinds: Iterable[str]) -> None:
        warn(self._request, "not offered", filter(is_of_servers, kinds))

    async def asked(self, make: Callable[[], RequestT]) -> RequestT:
        """Make a request of a body: with the model's messages, and with its owner.

        One caller's reasoning never gets into another's prompt. Raises ModelNotFoundError.
        """
        defaults = self.entry.defaults  # a wrong model is said before all else
        asked = begin(await translate(self._request, make), defaults)
        priority = current_caller().priority - self._is_flex
        asked = msgspec.structs.replace(asked, priority=priority, in_memory=self._in_memory)
        if isinstance(asked, RawRequest):
            return asked
        owner, answer_now = owner_of(self._request), AnswerNow()
        self._request.app.state.wishes[owner, request_id_of(self._request)] = answer_now
        return msgspec.structs.replace(asked, owner=owner, answer_now=answer_now)

    def _fill_in(self, body: dict[str, Any]) -> dict[str, Any]:
        self._is_flex = body.get("service_tier") == "flex"
        retention = body.get(_RETENTION)
        if not isinstance(retention, str | None) or retention not in _KEPT:
            raise UsageError(f"{_RETENTION} must be in_memory or 24h")
        self._in_memory = _KEPT[retention]
        self.find(body)
        if isinstance(self._found, ModelEntry):
            return fill_in(body, self._found.defaults, self._names)
        return body

    def find(self, body: Mapping[str, Any]) -> None:
        """Find the model that a body names."""
        name = body.get("model")
        try:
            name = name if isinstance(name, str) else ""
            self._found = find_model(name, self.manager.settings)
        except GptOssError as error:  # raised when the model is asked for
            self._found = error if name else UsageError("model is required")

    def meant(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model that was used last, if it names none."""
        if body.get("model"):
            return body
        if not self._loaded:
            raise UsageError("model is required, as none is loaded")
        return body | {"model": self._loaded[-1].entry.name}


def _lasting(message: Message) -> Message | None:
    """Return a message without Claude Code's billing line, which would defeat the cache."""
    if message.role != "system" or not (line := _BILLING.match(message.content)):
        return message
    rest = message.content[line.end() :]
    return msgspec.structs.replace(message, content=rest) if rest else None


def fill_in(
    body: dict[str, Any], defaults: ModelDefaults, names: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a body with a model's options where it has none; `names` as for `NamedModel`."""
    known = Options.__struct_fields__
    options = {name: value for name, value in defaults.parameters.items() if name in known}
    if not options:
        return body
    if names is not None:
        return _as_fields(options, body, names)
    sent = body.get("options", {})
    return body | {"options": options | sent} if isinstance(sent, dict) else body


def _as_fields(
    options: dict[str, Any], body: dict[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    fields = {names.get(name, name): value for name, value in options.items()}
    if fields.get("seed", 0) < 0:  # Ollama's way to say that there is none
        del fields["seed"]
    if isinstance(stop := fields.get("stop_sequences"), str):
        fields["stop_sequences"] = [stop]
    return {k: v for k, v in fields.items() if _INSTEAD.get(k) not in body} | body


def begin(request: RequestT, defaults: ModelDefaults) -> RequestT:
    """Put a model's messages before the request's, whose own system message alone counts."""
    if isinstance(request, RawRequest) or request.earlier_tokens:
        return request
    messages = [message for each in request.messages if (message := _lasting(each))]
    n_system = 1 if messages and messages[0].role == "system" else 0
    own = (convert(message, SentMessage) for message in defaults.messages)
    messages[n_system:n_system] = [message.to_message(is_new=False) for message in own]
    if defaults.system and not n_system:
        messages.insert(0, Message(role="system", content=defaults.system))
    return msgspec.structs.replace(request, messages=tuple(messages))
