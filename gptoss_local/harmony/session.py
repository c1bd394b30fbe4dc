"""Runs one answer: render, generate, parse, filter. The only file that joins chat and engine."""

import asyncio
import datetime
import functools
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from gptoss_local.base.errors import BrokenCallError, ContextOverflowError
from gptoss_local.base.events import (
    ChatEvent,
    ContentDelta,
    Delta,
    Done,
    Prefilling,
    ReasoningDelta,
    Started,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.base.off_loop import Check, run_off_loop
from gptoss_local.base.types import Usage
from gptoss_local.engine.interface import AnyEngine
from gptoss_local.engine.protocol import Finished, Generate, Prefilled, Tokens
from gptoss_local.harmony.budget import PromptTooLongError, TokenBudget, least_tokens, text_size
from gptoss_local.harmony.conversation import Recall, StartDates, lineage, shorten
from gptoss_local.harmony.grammar import compile_grammar
from gptoss_local.harmony.message import ChatRequest, RawRequest
from gptoss_local.harmony.parser import HarmonyParser, RawParser, TokenParser
from gptoss_local.harmony.reader import Reader, WaitingLogprobs
from gptoss_local.harmony.render import (
    begun_answer,
    correction,
    end_of_analysis,
    ended,
    opens_analysis,
    opens_final,
    render_chat,
    render_history,
)
from gptoss_local.harmony.thinking import Thinking
from gptoss_local.harmony.vocabulary import START, STOP_TOKENS, Vocabulary

_N_CORRECTIONS = 3  # of bad calls in one answer

_start_dates = StartDates()  # of all conversations with this server
_recall = Recall()
# Of their own, so that slow schemas keep no prompt waiting.
_grammar_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="grammars")


async def answer(
    engine: AnyEngine,
    vocabulary: Vocabulary,
    request: ChatRequest | RawRequest,
    *,
    n_room: int = 0,
    on_tokens: Callable[[int], None] = lambda _: None,
) -> AsyncGenerator[ChatEvent, None]:
    """Yield the events of an answer, from Started to Done; closing the iterator stops the engine.

    `n_room` tokens must be free after the prompt, unless the answer may have fewer. `on_tokens` is
    called with the number of tokens that the engine has just generated.

    Raises:
        UsageError: its format cannot be enforced.
        ContextOverflowError: the prompt does not fit; it is cut only if the request says so.
        EngineError: the engine failed or died.
        BrokenCallError: a call that was being streamed cannot be completed.
    """
    n_ctx, n_ctx_train = engine.loaded.n_ctx, engine.loaded.n_ctx_train
    if not request.truncates and (n_least := least_tokens(request)) > n_ctx_train:
        raise _overflow(n_least, n_ctx, n_ctx_train, is_exact=False)
    begin = functools.partial(_start, request, vocabulary, n_ctx, n_ctx_train)
    try:
        start = await run_off_loop(begin, text_size(request))
    except PromptTooLongError as error:
        raise _overflow(error.n_tokens, n_ctx, n_ctx_train, is_exact=False) from error
    request = start.request
    if request.max_tokens is not None:
        n_room = min(n_room, request.max_tokens)
    if len(start.prompt) + n_room >= n_ctx:
        raise _overflow(len(start.prompt), n_ctx, n_ctx_train)
    grammar = await _make_grammar(request, opens_final=start.opens_final)
    yield Started(len(start.prompt), start.n_left_out)
    reading = _Reading(start, vocabulary, on_tokens, 0 if grammar else _N_CORRECTIONS)
    while prompt := reading.next_prompt:
        if reading.must_answer and grammar:
            grammar = await _make_grammar(request, opens_final=True)
        asked = Generate(
            prompt=prompt,
            sampling=request.sampling,
            stop_tokens=STOP_TOKENS,
            max_tokens=reading.max_tokens,
            grammar=grammar,
            n_logprobs=request.n_logprobs,
            reports_prefill=request.reports_prefill,
            priority=request.priority,
            in_memory=request.in_memory,
        )
        async with aclosing(engine.generate(asked)) as generation:
            async for frame in generation:
                if isinstance(frame, Finished) and reading.goes_on(frame, n_ctx):
                    break
                was_over = reading.is_over
                for event in reading.events(frame):
                    yield event
                if isinstance(frame, Tokens) and reading.is_over and not was_over:
                    engine.cancel(frame.seq_id)
    # The reasoning of a tool loop stays until its results have been answered.
    whole = reading.whole
    is_known = whole.done.reason == "stop" and bool(whole.content) and not whole.calls
    if is_known and isinstance(request, ChatRequest) and request.has_next_turn:
        render = functools.partial(render_history, request, whole.content, vocabulary, start.date)
        _prefetch(engine, lineage(request), render, in_memory=request.in_memory)


class _Start(NamedTuple):
    request: ChatRequest | RawRequest
    prompt: list[int]
    parser: HarmonyParser | RawParser
    opens_final: bool = True
    shows_reasoning: bool = True
    date: datetime.date | None = None
    n_left_out: int = 0


def _start(
    request: ChatRequest | RawRequest,
    vocabulary: Vocabulary,
    n_ctx: int,
    n_ctx_train: int,
    check: Check,
) -> _Start:
    """Render the prompt. Raises PromptTooLongError if no context of the model could hold it."""
    vocabulary.check([token for token, _ in request.sampling.logit_bias], "logit_bias")
    if isinstance(request, RawRequest):
        if isinstance(request.prompt, tuple):
            vocabulary.check(request.prompt, "prompt")
            return _Start(request, list(request.prompt), TokenParser(vocabulary))
        budget = TokenBudget(n_ctx_train, check)
        prompt = vocabulary.encode_tagged(request.prompt, budget)
        return _Start(request, prompt, RawParser(vocabulary))
    request, date, n_left_out = _prepared(request, vocabulary, n_ctx, check)
    is_final = opens_final(request)
    return _Start(
        request,
        render_chat(request, vocabulary, date, TokenBudget(n_ctx_train, check)),
        HarmonyParser(
            vocabulary,
            request.tools,
            opens_final=is_final,
            streams_calls=request.streams_calls,
            opens_analysis=opens_analysis(request),
        ),
        is_final,
        request.reasoning,
        date,
        n_left_out,
    )


def _prepared(
    request: ChatRequest, vocabulary: Vocabulary, n_ctx: int | None, check: Check
) -> tuple[ChatRequest, datetime.date, int]:
    """Return a request as it is rendered, its date, and how many messages are left out."""
    request, n_left_out = _recall.fill_in(request, vocabulary), 0
    if request.truncates and n_ctx is not None:
        request, n_left_out = shorten(request, vocabulary, n_ctx, check)
    return request, _start_dates.date_of(request), n_left_out


def _remember(start: _Start, whole: WholeAnswer) -> None:
    if not whole.calls or isinstance(start.request, RawRequest):
        return
    done = whole.done
    is_whole = done.reason == "stop" and not done.stop_string and not start.opens_final
    written = done.tokens[len(start.prompt) :] if is_whole else []
    _recall.add(start.request.owner, whole, written)


def _prefetch(
    engine: AnyEngine, name: str, render: Callable[[], list[int]], *, in_memory: bool
) -> None:
    """Let the engine prepare the next turn's beginning, without waiting for it."""

    def send(rendering: asyncio.Future[list[int]]) -> None:
        engine.prefetch(name, rendering.result(), in_memory=in_memory)

    asyncio.get_running_loop().run_in_executor(None, render).add_done_callback(send)


async def _make_grammar(request: ChatRequest | RawRequest, *, opens_final: bool) -> str | None:
    """Make the grammar on a thread, as a large schema takes a while; None if the answer is free."""
    is_strict = any(tool.strict for tool in request.tools)
    if request.format is None and not request.must_call and not is_strict:
        return None
    make = functools.partial(
        compile_grammar,
        request.format,
        request.tools,
        must_call=request.must_call,
        opens_final=opens_final,
    )
    return await asyncio.get_running_loop().run_in_executor(_grammar_threads, make)


async def n_prompt_tokens(request: ChatRequest, vocabulary: Vocabulary) -> int:
    def count(check: Check) -> int:
        filled = _recall.fill_in(request, vocabulary)
        return len(render_chat(filled, vocabulary, budget=TokenBudget(check=check)))

    return await run_off_loop(count, text_size(request))


def prompt_tokens(
    request: ChatRequest,
    vocabulary: Vocabulary,
    *,
    n_ctx: int | None,
    n_ctx_train: int,
    check: Check = lambda: None,
) -> list[int]:
    """Return the very prompt that `answer` makes of a request; slow, so call it on a thread.

    `n_ctx` tokens are loaded (None: nothing is), `n_ctx_train` could be. `check` raises when the
    prompt is no longer wanted. Raises ContextOverflowError as `answer`.
    """
    request, date, _ = _prepared(request, vocabulary, n_ctx, check)
    try:
        return render_chat(request, vocabulary, date, TokenBudget(n_ctx_train, check))
    except PromptTooLongError as error:
        n_loaded = n_ctx or n_ctx_train
        raise _overflow(error.n_tokens, n_loaded, n_ctx_train, is_exact=False) from error


def _overflow(
    n_prompt: int, n_ctx: int, n_ctx_max: int, *, is_exact: bool = True
) -> ContextOverflowError:
    n_tokens = f"{'' if is_exact else 'at least '}{n_prompt}"
    limit, n_most = "the context length currently available to the model", n_ctx
    hint = "Shorten the prompt, or ask for more context (num_ctx)."
    if n_prompt >= n_ctx_max:
        limit, n_most = "the model can read", n_ctx_max
        hint = "Shorten it, or ask about one part at a time."
    return ContextOverflowError(
        f"the prompt is longer than {limit}: {n_tokens} tokens > {n_most} maximum",
        hint=hint,
        n_prompt=n_prompt,
        n_ctx=n_ctx,
        n_ctx_max=n_ctx_max,
    )


class _Reading:
    """Turns the engine's frames of one answer into events.

    Attributes:
        next_prompt: For the engine to continue with; None once the answer is over.
        max_tokens: That the engine may write then.
        must_answer: The analysis has been closed for good, and the final message is open.
    """

    def __init__(
        self,
        start: _Start,
        vocabulary: Vocabulary,
        on_tokens: Callable[[int], None],
        n_corrections: int,
    ) -> None:
        request = start.request
        self._n_corrections = n_corrections
        self._thinking = Thinking(request.think_budget, request.ends_repetition, request.answer_now)
        self.must_answer = self._was_asked_to_answer = False
        self._is_short = False  # of room to continue
        self._pending: list[Delta] = []  # of the analysis that was closed
        self._scored = None if request.n_logprobs is None else WaitingLogprobs(vocabulary)
        self.whole = WholeAnswer()
        self.next_prompt: list[int] | None = start.prompt
        self.max_tokens = request.max_tokens
        self._start = start
        self._vocabulary = vocabulary
        self._on_tokens = on_tokens
        self._earlier: list[Usage] = []  # of what the model wrote before it was corrected
        self._tokens = list(start.prompt)
        self._reader = Reader(start.parser, request.stop, self._scored, one_call=request.one_call)

    @property
    def is_over(self) -> bool:
        """Return whether the answer has ended, though the engine may not know yet."""
        thinking = self._thinking
        return self._reader.is_over or thinking.is_enough or thinking.is_circling

    def goes_on(self, finished: Finished, n_ctx: int) -> bool:
        """Return whether the model continues: after a bad call, or to answer now."""
        if self._n_corrections and self._correct(finished, n_ctx):
            self._n_corrections -= 1
            return True
        return self._close_analysis(finished, n_ctx) or self._open_final(finished, n_ctx)

    def _open_final(self, finished: Finished, n_ctx: int) -> bool:
        """Let the model answer, once, if it has ended without an answer and without a call."""
        request = self._start.request
        if isinstance(request, RawRequest) or request.must_call or self._was_asked_to_answer:
            return False
        is_begun = self._start.opens_final and begun_answer(request) is not None
        is_empty = finished.reason == "stop" and not self._start.parser.has_answer
        if is_begun or not is_empty or self.is_over:
            return False
        self._was_asked_to_answer = self.must_answer = True
        opening = end_of_analysis(self._vocabulary, opens_final=True)
        for token in opening:
            self._pending += self._reader.feed(token)
        return self._continue([*ended(self._tokens), *opening[1:]], finished, n_ctx)

    def _close_analysis(self, finished: Finished, n_ctx: int) -> bool:
        """Close long reasoning, and let the model continue: with a call, or else the answer."""
        thinking, request = self._thinking, self._start.request
        if not thinking.is_enough or finished.reason == "length" or self._reader.is_over:
            return False
        may_answer = thinking.n_closed > 0 or not request.tools
        self.must_answer = may_answer and not request.must_call
        closing = end_of_analysis(self._vocabulary, opens_final=self.must_answer)
        for token in closing:
            self._pending += self._reader.feed(token)
        thinking.closed()
        return self._continue([*self._tokens, *closing], finished, n_ctx)

    def _correct(self, finished: Finished, n_ctx: int) -> bool:
        """Tell the model of its bad call, which no client can answer; return if it tries again."""
        bad_call = self._start.parser.bad_call
        if finished.reason != "stop" or bad_call is None or self.is_over:
            return False
        told = correction(bad_call, self._start.request.tools, self._vocabulary)
        return self._continue([*self._tokens, *told], finished, n_ctx)

    def _continue(self, prompt: list[int], finished: Finished, n_ctx: int) -> bool:
        left = None if self.max_tokens is None else self.max_tokens - finished.usage.n_generated
        self._is_short = len(prompt) >= n_ctx or (left is not None and left <= 0)
        if self._is_short:
            return False
        self.max_tokens = left
        self._earlier.append(finished.usage)
        self._tokens, self.next_prompt = prompt, prompt
        return True

    def events(self, frame: Prefilled | Tokens | Finished) -> Iterator[ChatEvent]:
        """Yield a frame's events. Raises BrokenCallError."""
        for event in self._read(frame):
            self.whole.add(event)
            if isinstance(event, Done):
                _remember(self._start, self.whole)
            if isinstance(event, ReasoningDelta) and not self._start.shows_reasoning:
                continue
            if self._scored and isinstance(event, ReasoningDelta | ToolCall | Done):
                event = msgspec.structs.replace(event, logprobs=self._scored.take_all())
            yield event

    def _read(self, frame: Prefilled | Tokens | Finished) -> Iterator[ChatEvent]:
        reader, parser = self._reader, self._start.parser
        yield from self._pending
        self._pending = []
        if isinstance(frame, Prefilled):
            if not self._earlier:
                yield Prefilling(frame.n_tokens, frame.n_cached)
        elif isinstance(frame, Finished):
            yield from reader.finish()
            reason = "stop" if reader.is_over else frame.reason
            if self._thinking.is_circling:
                reason = "repetition"
            elif self._is_short:
                reason = "length"
            is_empty = reason == "stop" and self._was_asked_to_answer and not parser.has_answer
            if is_empty and parser.last_thought:  # rather than nothing
                yield ContentDelta(parser.last_thought)
            self.next_prompt = None
            usage = _sum([*self._earlier, frame.usage])
            yield Done(reason, usage, self._tokens, parser.n_reasoning, reader.stop.found)
        else:
            self._on_tokens(len(frame.tokens))
            for token, logprob in itertools.zip_longest(frame.tokens, frame.logprobs):
                if self.is_over:  # decoded before the engine heard of it
                    if self._scored and logprob:
                        self._scored.add(token, logprob, is_content=False)
                    continue
                self._tokens.append(token)
                yield from reader.feed(token, logprob)
                if parser.broken_call:
                    call = f"the model's call of '{parser.broken_call}'"
                    raise BrokenCallError(
                        f"{call} broke off after a part of it was sent",
                        hint="Send the request again.",
                    )
                self._thinking.feed(token, parser)
                if parser.is_over:  # the next turn must not repeat the other's header
                    while self._tokens.pop() != START:
                        pass


def _sum(usages: Sequence[Usage]) -> Usage:
    """Sum up an answer's parts; the prompt counts once, as the later ones hold the first."""
    first = usages[0]
    if len(usages) == 1:
        return first
    names = ("n_generated", "prefill_ns", "decode_ns", "queue_ns", "n_drafted", "n_accepted")
    sums = {name: sum(getattr(usage, name) for usage in usages) for name in names}
    return msgspec.structs.replace(first, **sums)
