"""OpenAI's Chat Completions, Completions and Models: `/v1/*`. Source: its API reference."""

import asyncio
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.engine.interface import cache_salt
from gptoss_local.harmony import (
    CallDelta,
    ChatEvent,
    ContentDelta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    TokenDelta,
    TokenLogprob,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.models.store import ModelEntry, find_model, list_models
from gptoss_local.server.dialect import Endpoints
from gptoss_local.server.dialects.anthropic.routes import model_info, model_list
from gptoss_local.server.dialects.named_model import NamedModel, settings_of
from gptoss_local.server.dialects.ollama.routes import tag
from gptoss_local.server.dialects.openai.chat_request import ChatCompletionBody, CompletionBody
from gptoss_local.server.dialects.openai.parts import (
    END,
    CompletionLogprobs,
    InputTokens,
    OpenAILogprob,
    completion_logprobs,
    error_body,
    new_id,
    now_s,
    openai_logprobs,
    usage,
)
from gptoss_local.server.streaming import SSE, AnswerResponse, SseEvent, json_response

endpoints = Endpoints()
_FINGERPRINT = "fp_ollama"


class OpenAIModel(msgspec.Struct, kw_only=True):
    """A model; its longest context goes by vLLM's and by OpenRouter's name."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "library"
    max_model_len: int | UnsetType = UNSET
    context_length: int | UnsetType = UNSET


class OpenAIModels(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class CompletionUsage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens: int
    completion_tokens_details: dict[str, int]
    total_tokens: int


class CompletionMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    role: Literal["assistant"]
    content: str | None
    reasoning: str = ""
    reasoning_content: str = ""
    tool_calls: list[dict[str, Any]] = []


class ChoiceLogprobs(msgspec.Struct):
    content: list[OpenAILogprob]
    refusal: None = None


class ChatChoice(msgspec.Struct):
    message: CompletionMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    index: int = 0
    native_finish_reason: str | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class TextChoice(msgspec.Struct):
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str
    index: int = 0
    token_ids: list[int] | UnsetType = UNSET
    native_finish_reason: str | UnsetType = UNSET


class TextCompletion(msgspec.Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: CompletionUsage


class _Writer:
    framing = SSE
    _id_prefix: str
    _chunk_object: str
    _whole_object: str

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._head: dict[str, Any] = {
            "id": new_id(self._id_prefix),
            "object": self._chunk_object,
            "created": now_s(),
            "model": model,
            "system_fingerprint": _FINGERPRINT,
        }
        self._include_usage = include_usage
        self._answer = WholeAnswer()

    def failed(self, error: GptOssError) -> Iterable[SseEvent]:
        return [SseEvent(error_body(error)), END]

    @property
    def _fields(self) -> dict[str, Any]:
        counts = CompletionUsage(**usage(self._answer.done, "prompt", "completion"))
        return self._head | {"object": self._whole_object, "usage": counts}

    def _chunk(self, finish_reason: str | None = None, **fields: Any) -> SseEvent:
        choice = {"index": 0, "logprobs": None, **fields, "finish_reason": finish_reason}
        if finish_reason is not None and self._native != UNSET:
            choice["native_finish_reason"] = self._native
        return SseEvent(self._head | {"choices": [choice]})

    @property
    def _native(self) -> str | UnsetType:
        """Return the reason that OpenAI has no word for, as OpenRouter names it."""
        return "repetition" if self._answer.done.end == "repetition" else UNSET

    def _finish_reason(self) -> str:
        if self._answer.done.end != "stop":
            return "length"
        return "tool_calls" if self._answer.calls else "stop"

    def _last(self, done: Done) -> list[SseEvent]:
        if not self._include_usage:
            return [END]
        counts = usage(done, "prompt", "completion")
        return [SseEvent(self._head | {"choices": [], "usage": counts}), END]


class ChatCompletionWriter(_Writer):
    """An answer of `/v1/chat/completions`. Reasoning goes by both names that clients read."""

    _id_prefix = "chatcmpl-"
    _chunk_object = "chat.completion.chunk"
    _whole_object = "chat.completion"

    def __init__(
        self, model: str, *, include_usage: bool, custom_names: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(model, include_usage=include_usage)
        self._custom_names = custom_names
        self._opening: dict[str, Any] = {"role": "assistant", "content": ""}
        self._n_sent: dict[int, int] = {}  # characters of arguments by call, while it is written

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        self._answer.add(event)
        logprobs = None
        match event:
            case Growing() | Started() | Prefilling():
                return []
            case ReasoningDelta(text):
                delta: dict[str, Any] = {"reasoning": text, "reasoning_content": text}
            case ContentDelta(text, tokens):
                delta, logprobs = {"content": text}, _choice_logprobs(tokens)
            case CallDelta(name=name) if name in self._custom_names:  # of one that was cut
                delta = {"tool_calls": [self._cut_call(event)]}
            case CallDelta(index, call_id, name, text):
                delta = {"tool_calls": [self._piece(index, call_id, name, text)]}
            case ToolCall(index, call_id, name) if index in self._n_sent:
                rest = event.arguments_json()[self._n_sent[index] :]
                delta = {"tool_calls": [self._piece(index, call_id, name, rest)]}
            case ToolCall():
                delta = {"tool_calls": [self._tool_call(event)]}
            case Done():
                finish = self._chunk(self._finish_reason(), delta=self._opening)
                return [finish, *self._last(event)]
        return [self._next(delta, logprobs)]

    def keepalive(self) -> Iterable[SseEvent]:
        return [self._next({})]

    def _next(self, delta: dict[str, Any], logprobs: Any = None) -> SseEvent:
        delta, self._opening = self._opening | delta, {}
        return self._chunk(delta=delta, logprobs=logprobs)

    def whole(self) -> ChatCompletion:
        answer = self._answer
        calls = [self._tool_call(call) for call in answer.calls]
        if answer.cut_call:
            calls.append(self._cut_call(answer.cut_call))
        message = CompletionMessage(
            role="assistant",
            content=answer.content,
            reasoning=answer.reasoning,
            reasoning_content=answer.reasoning,
            tool_calls=calls,
        )
        logprobs, reason = _choice_logprobs(answer.logprobs), self._finish_reason()
        choice = ChatChoice(message, logprobs, reason, native_finish_reason=self._native)
        return ChatCompletion(**self._fields, choices=[choice])

    def _tool_call(self, call: ToolCall) -> dict[str, Any]:
        head = {"id": call.id, "index": call.index}
        if call.name in self._custom_names:
            custom = {"name": call.name, "input": call.arguments["input"]}
            return head | {"type": "custom", "custom": custom}
        return head | _function(call.name, call.arguments_json())

    def _cut_call(self, cut: CallDelta) -> dict[str, Any]:
        if cut.name in self._custom_names:
            arguments = {"input": ""} | cut.arguments
            return self._tool_call(ToolCall(cut.index, cut.id, cut.name, arguments))
        return {"id": cut.id, "index": cut.index} | _function(cut.name, cut.text)

    def _piece(self, index: int, call_id: str, name: str, text: str) -> dict[str, Any]:
        n_sent = self._n_sent.get(index)
        self._n_sent[index] = (n_sent or 0) + len(text)
        if n_sent is None:
            return {"id": call_id, "index": index} | _function(name, text)
        return {"index": index, "function": {"arguments": text}}


def _choice_logprobs(tokens: Iterable[TokenLogprob]) -> ChoiceLogprobs | None:
    content = openai_logprobs(tokens)
    return ChoiceLogprobs(content) if content else None


def _function(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


class CompletionWriter(_Writer):
    """An answer of `/v1/completions`: content alone, after `echo`."""

    _id_prefix = "cmpl-"
    _chunk_object = "text_completion"
    _whole_object = "text_completion"

    def __init__(self, model: str, *, include_usage: bool, echo: str = "") -> None:
        super().__init__(model, include_usage=include_usage)
        self._echo = echo
        self._token_ids: list[int] = []

    def feed(self, event: ChatEvent) -> Iterable[SseEvent]:
        self._answer.add(event)
        match event:
            case Started() if self._echo:
                return [self._chunk(text=self._echo)]
            case ContentDelta(text, tokens):
                return [self._chunk(text=text, logprobs=completion_logprobs(tokens))]
            case TokenDelta(token):
                self._token_ids.append(token)
                return [self._chunk(text="", token_ids=[token])]
            case Done():
                return [self._chunk(self._finish_reason(), text=""), *self._last(event)]
        return []

    def keepalive(self) -> Iterable[SseEvent]:
        return [self._chunk(text="")]

    def whole(self) -> TextCompletion:
        text = self._echo + self._answer.content
        logprobs, reason = completion_logprobs(self._answer.logprobs), self._finish_reason()
        choice = TextChoice(text, logprobs, reason, native_finish_reason=self._native)
        choice.token_ids = self._token_ids or UNSET
        return TextCompletion(**self._fields, choices=[choice])


_NAMES = {"num_predict": "max_tokens"}


@endpoints.metered(
    "/v1/chat/completions",
    "OpenAI's Chat Completions",
    ChatCompletion,
    ChatCompletionBody,
    stream=SSE,
)
async def chat_completions(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ChatCompletionBody)
    model.warn_of(tool.kind for tool in body.tools)
    asked = await model.asked(body.to_request)
    writer = ChatCompletionWriter(
        body.model,
        include_usage=body.stream_options.include_usage,
        custom_names=frozenset(t.name for t in asked.tools if t.free_text is not None),
    )
    return AnswerResponse(model.manager.answer(model.entry, asked), writer, stream=body.stream)


@endpoints.metered(
    "/v1/chat/completions/input_tokens", "Length of a prompt", InputTokens, ChatCompletionBody
)
async def input_tokens(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(ChatCompletionBody)
    asked = await model.asked(body.to_request)
    return json_response(InputTokens(input_tokens=await model.n_tokens(asked)))


endpoints.refuse(
    *("GET", "/v1/chat/completions"),
    *("Chat Completions are not stored", "Answers of /v1/responses are."),
)


@endpoints.metered(
    "/v1/completions", "OpenAI's Completions", TextCompletion, CompletionBody, stream=SSE
)
async def completions(request: Request) -> Response:
    model = NamedModel(request, _NAMES)
    body = await model.read(CompletionBody)
    asked = await model.asked(body.to_request)
    if body.token_ids and model.entry.upstream:
        raise UsageError(f"'{body.model}' is computed elsewhere", hint="Ask its own server.")
    if body.cache_salt:  # within the caller's own prefixes
        salt = cache_salt.get() + body.cache_salt.encode()
        cache_salt.set(blake2b(salt, digest_size=16).digest())
    echo = body.text if body.echo else ""
    include_usage = body.stream_options.include_usage
    writer = CompletionWriter(body.model, include_usage=include_usage, echo=echo)
    return AnswerResponse(model.manager.answer(model.entry, asked), writer, stream=body.stream)


@endpoints.for_keys("GET", "/v1/models", "Models on disk", OpenAIModels)
async def models(request: Request) -> Response:
    settings = settings_of(request)
    if is_of_anthropic(request):
        return json_response(model_list(await asyncio.to_thread(list_models, settings)))
    found = await asyncio.to_thread(lambda: list(map(_model, list_models(settings))))
    return json_response(OpenAIModels(data=found))


@endpoints.for_keys("GET", "/v1/models/{name:path}", "A model on disk", OpenAIModel)
async def model(request: Request) -> Response:
    entry = find_model(request.path_params["name"], settings_of(request))
    if is_of_anthropic(request):
        return json_response(model_info(entry))
    return json_response(await asyncio.to_thread(_model, entry))


endpoints.refuse(
    *("DELETE", "/v1/models/{name:path}"),
    *("models are not deleted here", "Send DELETE /api/delete, or run `gptoss rm`."),
)


def is_of_anthropic(request: Request) -> bool:
    """Return whether Anthropic's client sent a request to a path that OpenAI has, too."""
    return "anthropic-version" in request.headers


def _model(entry: ModelEntry) -> OpenAIModel:
    n_ctx = tag(entry).details.context_length or UNSET
    created = entry.modified_ns // 10**9
    return OpenAIModel(id=entry.name, created=created, max_model_len=n_ctx, context_length=n_ctx)
