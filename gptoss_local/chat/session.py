"""Runs one answer: render, generate, parse, filter. The only file that joins chat and engine."""

import asyncio
import datetime
import functools
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

from gptoss_local.chat.events import (
    ChatEvent,
    ContentDelta,
    Done,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
)
from gptoss_local.chat.grammar import compile_grammar
from gptoss_local.chat.lineage import StartDates, lineage
from gptoss_local.chat.logprobs import ContentLogprobs
from gptoss_local.chat.message import ChatRequest, RawRequest
from gptoss_local.chat.parser import HarmonyParser, RawParser
from gptoss_local.chat.reader import Reader
from gptoss_local.chat.render import opens_final, render_chat, render_history
from gptoss_local.chat.truncation import shorten
from gptoss_local.chat.vocabulary import STOP_TOKENS, Vocabulary
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Finished, Prefilled
from gptoss_local.errors import ContextOverflowError

_start_dates = StartDates()  # of all conversations with this server


async def answer(
    engine: EngineClient,
    vocabulary: Vocabulary,
    request: ChatRequest | RawRequest,
    *,
    n_room: int = 0,
) -> AsyncGenerator[ChatEvent, None]:
    """Yield the events of one answer; the first one is Started, the last one Done.

    Closing the iterator stops the engine.

    Args:
        engine: Where it is computed.
        vocabulary: Of its model.
        request: What is asked.
        n_room: Tokens that must be free behind the prompt, unless the answer may have fewer.

    Raises:
        UsageError: the conversation cannot be rendered, or its format not enforced.
        ContextOverflowError: the prompt does not fit; it is cut only if the request says so.
        EngineError: the engine failed or died.
    """
    n_ctx, n_left_out = engine.loaded.n_ctx, 0
    if isinstance(request, ChatRequest) and request.truncates:
        request, n_left_out = await asyncio.to_thread(shorten, request, vocabulary, n_ctx)
    start = await asyncio.to_thread(_start, request, vocabulary)
    if request.max_tokens is not None:
        n_room = min(n_room, request.max_tokens)
    if len(start.prompt) + n_room >= n_ctx:
        raise _overflow(len(start.prompt), n_ctx)
    grammar = None
    if _is_bound(request):  # in a thread, as a large schema takes a while
        grammar = await asyncio.to_thread(_grammar, request, opens_final=start.opens_final)
    yield Started(len(start.prompt), n_left_out)
    history = _History()
    running = _run(engine, start.prompt, start.parser, request, grammar, vocabulary)
    async with aclosing(running) as events:
        async for event in events:
            history.feed(event)
            if start.shows_reasoning or not isinstance(event, ReasoningDelta):
                yield event
    if history.is_known and isinstance(request, ChatRequest) and request.has_next_turn:
        content = "".join(history.content)
        render = functools.partial(render_history, request, content, vocabulary, start.date)
        _prefetch(engine, lineage(request), render)


class _Start(NamedTuple):
    """What an answer begins with: the prompt, and how to read what follows."""

    prompt: list[int]
    parser: HarmonyParser | RawParser
    opens_final: bool = True
    shows_reasoning: bool = True
    date: datetime.date | None = None


def _start(request: ChatRequest | RawRequest, vocabulary: Vocabulary) -> _Start:
    if isinstance(request, RawRequest):
        return _Start(vocabulary.encode_tagged(request.prompt), RawParser(vocabulary))
    date = _start_dates.date_of(request)
    is_final = opens_final(request)
    return _Start(
        render_chat(request, vocabulary, date),
        HarmonyParser(vocabulary, request.tools, opens_final=is_final),
        is_final,
        request.reasoning,
        date,
    )


class _History:
    """What the next turn will hold of an answer: its content alone, if it ended well."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.is_known = False
        self._has_call = False  # the reasoning stays until the results have been answered

    def feed(self, event: ChatEvent) -> None:
        match event:
            case ContentDelta(text):
                self.content.append(text)
            case ToolCall():
                self._has_call = True
            case Done(reason):
                self.is_known = reason == "stop" and bool(self.content) and not self._has_call


def _prefetch(engine: EngineClient, name: str, render: Callable[[], list[int]]) -> None:
    """Let the engine prepare what the next turn begins with; nobody waits for it."""

    def send(rendering: asyncio.Future[list[int]]) -> None:
        engine.prefetch(name, rendering.result())

    asyncio.get_running_loop().run_in_executor(None, render).add_done_callback(send)


def _is_bound(request: ChatRequest | RawRequest) -> bool:
    """Whether anything in the request needs a grammar for the answer."""
    if request.format is not None or isinstance(request, RawRequest):
        return request.format is not None
    return bool(request.must_call) or any(tool.strict for tool in request.tools)


def _grammar(request: ChatRequest | RawRequest, *, opens_final: bool) -> str:
    if isinstance(request, RawRequest):
        return compile_grammar(request.format, opens_final=opens_final)
    return compile_grammar(
        request.format, request.tools, must_call=request.must_call, opens_final=opens_final
    )


def n_prompt_tokens(request: ChatRequest, vocabulary: Vocabulary) -> int:
    """Length of the prompt that a request becomes. Raises UsageError as `answer`."""
    return len(render_chat(request, vocabulary))


def prompt_tokens(
    request: ChatRequest, vocabulary: Vocabulary, n_ctx: int | None = None
) -> list[int]:
    """The very prompt that `answer` makes of a request, where `n_ctx` tokens are loaded.

    Raises:
        UsageError: as `answer`.
    """
    if request.truncates and n_ctx is not None:
        request, _ = shorten(request, vocabulary, n_ctx)
    return render_chat(request, vocabulary, _start_dates.date_of(request))


def _overflow(n_prompt: int, n_ctx: int) -> ContextOverflowError:
    return ContextOverflowError(
        f"the prompt is longer than the context length currently available to the model: "
        f"{n_prompt} tokens > {n_ctx} maximum",
        hint="Shorten the prompt, or ask for more context (num_ctx, GPTOSS_CONTEXT_LENGTH).",
        n_prompt=n_prompt,
    )


async def _run(
    engine: EngineClient,
    prompt: list[int],
    parser: HarmonyParser | RawParser,
    request: ChatRequest | RawRequest,
    grammar: str | None,
    vocabulary: Vocabulary,
) -> AsyncGenerator[ChatEvent, None]:
    scored = None if request.n_logprobs is None else ContentLogprobs(vocabulary)
    reader, tokens = Reader(parser, request.stop, scored), list(prompt)
    generation = engine.generate(
        prompt,
        request.sampling,
        stop_tokens=STOP_TOKENS,
        max_tokens=request.max_tokens,
        grammar=grammar,
        n_logprobs=request.n_logprobs,
        reports_prefill=isinstance(request, ChatRequest) and request.reports_prefill,
    )
    async with aclosing(generation):
        async for event in generation:
            if isinstance(event, Prefilled):
                yield Prefilling(event.n_tokens, event.n_cached)
                continue
            if isinstance(event, Finished):
                for delta in reader.finish():
                    yield delta
                stopped_by = reader.stop.found
                reason = "stop" if stopped_by else event.reason
                yield Done(reason, event.usage, tokens, parser.n_reasoning, stopped_by)
                return
            for token, logprob in itertools.zip_longest(event.tokens, event.logprobs):
                if reader.stop.is_stopped:  # decoded before the engine heard of the stop
                    break
                tokens.append(token)
                for delta in reader.feed(token, logprob):
                    yield delta
                if reader.stop.is_stopped:
                    engine.cancel(event.seq_id)
