"""Ollama's native API: `/api/*`.

Source: Ollama's server/routes.go. Deliberate differences are listed in docs/api.md.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.chat import (
    ChatEvent,
    ChatRequest,
    ContentDelta,
    Done,
    RawRequest,
    ReasoningDelta,
    ToolCall,
    answer,
    answer_raw,
)
from gptoss_local.errors import GptOssError, UsageError
from gptoss_local.server import describe
from gptoss_local.server.manager import LoadedModel, ModelManager
from gptoss_local.server.ollama_frames import (
    AnswerMessage,
    ChatFrame,
    ErrorFrame,
    GenerateFrame,
    metrics,
    now,
    wire_tool_call,
)
from gptoss_local.server.ollama_request import ChatBody, GenerateBody, ModelBody, parse_body
from gptoss_local.server.streaming import FrameResponse, Frames, json_response
from gptoss_local.store import find_model, list_models, read_info

OLLAMA_VERSION = "0.33.0"  # the contract we speak; clients compare it with their minimum


def routes() -> list[Route]:
    return [
        Route("/api/version", version, methods=["GET"]),
        Route("/api/tags", tags, methods=["GET"]),
        Route("/api/ps", ps, methods=["GET"]),
        Route("/api/show", show, methods=["POST"]),
        Route("/api/chat", chat, methods=["POST"]),
        Route("/api/generate", generate, methods=["POST"]),
    ]


def error_frame(error: GptOssError) -> ErrorFrame:
    """The body of an error, also as the last line of a stream."""
    return ErrorFrame(error.message, error.hint, type(error).__name__)


async def version(_request: Request) -> Response:
    return json_response({"version": OLLAMA_VERSION})


async def tags(request: Request) -> Response:
    settings = _manager(request).settings
    models = await asyncio.to_thread(lambda: list(map(describe.tag, list_models(settings))))
    return json_response({"models": models})


async def ps(request: Request) -> Response:
    loaded = _manager(request).loaded
    return json_response({"models": [describe.running(loaded)] if loaded else []})


async def show(request: Request) -> Response:
    body = parse_body(await request.body(), ModelBody)
    name = body.model or body.name
    if not name:
        raise UsageError("model is required")
    settings = _manager(request).settings
    entry = find_model(name, settings)
    path = await asyncio.to_thread(entry.ensure_file, settings)
    entry = find_model(name, settings)  # an embedded model has a file now
    return json_response(describe.show(entry, await asyncio.to_thread(read_info, path)))


async def chat(request: Request) -> Response:
    start_ns = time.monotonic_ns()
    body = parse_body(await request.body(), ChatBody)
    if not body.model:
        raise UsageError("model is required")
    if not body.messages:
        reason = await _load_or_unload(request, body)
        message = AnswerMessage("assistant", "")
        return json_response(_chat_frame(body.model, message, done=True, done_reason=reason))
    frames = _chat_frames(_manager(request), body, body.to_request(), start_ns)
    return FrameResponse(frames, stream=body.stream, merge=_merge_chat, error_frame=error_frame)


async def generate(request: Request) -> Response:
    start_ns = time.monotonic_ns()
    body = parse_body(await request.body(), GenerateBody)
    if not body.prompt and not body.raw:
        reason = await _load_or_unload(request, body)
        return json_response(_generate_frame(body.model, "", done=True, done_reason=reason))
    frames = _generate_frames(_manager(request), body, body.to_request(), start_ns)
    return FrameResponse(frames, stream=body.stream, merge=_merge_generate, error_frame=error_frame)


def _manager(request: Request) -> ModelManager:
    manager: ModelManager = request.app.state.manager
    return manager


async def _load_or_unload(request: Request, body: ChatBody | GenerateBody) -> str:
    """An empty request loads the model, or unloads it with keep_alive 0; returns done_reason."""
    manager, keep_alive_s = _manager(request), body.keep_alive_s
    if keep_alive_s == 0:
        await manager.unload(body.model)
        return "unload"
    async with manager.use(body.model, n_ctx=body.options.n_ctx, keep_alive_s=keep_alive_s):
        return "load"


def _events(
    model: LoadedModel, request: ChatRequest | RawRequest
) -> AsyncGenerator[ChatEvent, None]:
    if isinstance(request, RawRequest):
        return answer_raw(model.engine, model.vocabulary, request)
    return answer(model.engine, model.vocabulary, request)


async def _chat_frames(
    manager: ModelManager, body: ChatBody, request: ChatRequest, start_ns: int
) -> Frames:
    use = manager.use(body.model, n_ctx=body.options.n_ctx, keep_alive_s=body.keep_alive_s)
    async with use as model:
        load_ns = time.monotonic_ns() - start_ns
        n_calls = 0
        async with aclosing(_events(model, request)) as events:
            async for event in events:
                message = AnswerMessage("assistant", "")
                match event:
                    case ContentDelta(text):
                        message.content = text
                    case ReasoningDelta(text):
                        message.thinking = text
                    case ToolCall():
                        message.tool_calls = [wire_tool_call(event, n_calls)]
                        n_calls += 1
                    case Done():
                        facts = metrics(event, load_ns, start_ns)
                        yield _chat_frame(body.model, message, done=True, **facts)
                        return
                yield _chat_frame(body.model, message, done=False)


async def _generate_frames(
    manager: ModelManager, body: GenerateBody, request: ChatRequest | RawRequest, start_ns: int
) -> Frames:
    use = manager.use(body.model, n_ctx=body.options.n_ctx, keep_alive_s=body.keep_alive_s)
    async with use as model:
        load_ns = time.monotonic_ns() - start_ns
        async with aclosing(_events(model, request)) as events:
            async for event in events:
                match event:
                    case ContentDelta(text):
                        yield _generate_frame(body.model, text, done=False)
                    case ReasoningDelta(text):
                        yield _generate_frame(body.model, "", thinking=text, done=False)
                    case Done():
                        facts = metrics(event, load_ns, start_ns)
                        if not body.raw:
                            facts["context"] = event.tokens
                        yield _generate_frame(body.model, "", done=True, **facts)


def _chat_frame(model: str, message: AnswerMessage, **fields: Any) -> ChatFrame:
    return ChatFrame(model=model, created_at=now(), message=message, **fields)


def _generate_frame(model: str, response: str, **fields: Any) -> GenerateFrame:
    return GenerateFrame(model=model, created_at=now(), response=response, **fields)


def _merge_chat(frames: list[ChatFrame]) -> ChatFrame:
    """One answer out of a stream: texts joined, everything else from the last frame."""
    last = frames[-1]
    last.message = AnswerMessage(
        "assistant",
        "".join(frame.message.content for frame in frames),
        "".join(frame.message.thinking for frame in frames),
        [call for frame in frames for call in frame.message.tool_calls],
    )
    return last


def _merge_generate(frames: list[GenerateFrame]) -> GenerateFrame:
    last = frames[-1]
    last.response = "".join(frame.response for frame in frames)
    last.thinking = "".join(frame.thinking for frame in frames)
    return last
