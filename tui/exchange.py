"""A message until the model's last word: answers, and the calls of tools between them.

One worker of the screen, which Esc ends. Frames are only collected; a timer calls `tick`, which
paints and stores, so that a fast model does not block the keys.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from gptoss_local.api.gptoss import ModelFit
from gptoss_local.base.errors import ContextOverflowError, GptOssError, HistoryError
from gptoss_local.base.events import ChatEvent, Growing, ToolCall
from gptoss_local.base.quantities import counted
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.history import Turn
from gptoss_local.talk.loop import STOPPED, Exchange
from gptoss_local.talk.tools import Arguments, RunnableTool, ToolResult
from gptoss_local.talk.what_runs import Decision, decide, what_runs
from tui.chat_view import ChatView, Talk
from tui.screens.errors import READ_S, show_error
from tui.screens.models import place_text
from tui.widgets.question import CallView
from tui.widgets.turn_view import AssistantTurnView

_FOR_ANSWER = 1.25  # how much more than the prompt a larger context holds, at least
_STEP = 8192


class Way(NamedTuple):
    """An option of the chat that makes the prompt fit; `SUMMARISE` is not one of them."""

    option: str
    value: Any


SUMMARISE = Way("summary", None)


def ways_for(
    n_ctx: int, fit: ModelFit | None, *, can_drop: bool, can_summarise: bool
) -> dict[str, Way | None]:
    """Return the ways by their labels; None does not send the message.

    `n_ctx` holds the prompt (0: no such context); `fit` is where the model would go with it.
    """
    ways: dict[str, Way | None] = {}
    if can_drop:
        ways["Leave out the oldest turns, in this chat"] = Way("truncate", True)
    if can_summarise:
        ways["Continue with a summary, which the model makes now"] = SUMMARISE
    if n_ctx and (fit is None or fit.fits != "no"):
        place = f": {place_text(fit)}" if fit else ""
        text = f"Load the model again with {n_ctx:,} tokens of context{place}"
        ways[text] = Way("num_ctx", n_ctx)
    ways["Do not send it; I shorten it"] = None
    return ways


def overflow_text(error: ContextOverflowError) -> str:
    n_prompt = error.n_prompt or 0
    if n_prompt >= error.n_ctx_max:  # the server counts no further
        n_over = n_prompt - error.n_ctx_max + 1
        limit = f"the model reads {error.n_ctx_max:,} at most"
        return f"It has at least {n_prompt:,} tokens and {limit}: {n_over:,} or more too many."
    n_over = n_prompt - error.n_ctx + 1
    return f"It has {n_prompt:,} tokens and the context holds {error.n_ctx:,}: {n_over:,} too many."


def larger_context(error: ContextOverflowError) -> int:
    """Return a context with room for the prompt and an answer; 0 if the model has none."""
    n_prompt = error.n_prompt or 0
    wanted = -(-int(n_prompt * _FOR_ANSWER) // _STEP) * _STEP
    n_ctx = min(wanted, error.n_ctx_max)
    return n_ctx if n_ctx > max(n_prompt, error.n_ctx) else 0


TICK_S = 1 / 20
_SAVE_EVERY = 20  # ticks
_T = TypeVar("_T")


class LiveExchange(Exchange):
    """One exchange, with the model, effort and tools of its beginning."""

    def __init__(self, talk: Talk, turn: Turn) -> None:
        super().__init__()
        self._view, self._conversation, self._server, self.toolbox = talk
        self._painting = asyncio.Lock()
        self._n_ticks = 0
        self._is_refused = False  # the disk did not take the answer the last time
        self._answer_id = ""
        self._sources_on = frozenset(self.toolbox.on)
        self._begin(turn)
        self.note = ""  # the present step, for the status line, while no answer streams
        self.is_live = True
        self.is_given_up = False  # a prompt that does not fit, by the user

    def _begin(self, turn: Turn) -> None:
        self._turn = turn
        self.answer = Answer(begun=turn)
        self._overflow: ContextOverflowError | None = None
        self._painted: tuple[AssistantTurnView | None, int] = None, -1

    @property
    def _shown(self) -> AssistantTurnView | None:
        return self._view.answer_view(self._turn)

    @property
    def _is_shown(self) -> bool:
        return self._view.conversation is self._conversation

    @property
    def ended_well(self) -> bool:
        return self.answer.phase == "done" and not (self.is_live or self.is_stopped)

    async def lead(self) -> None:
        try:
            await self.follow_all(self.toolbox)
        finally:  # also when the app ends, which cancels this
            self.answer.end("stopped")
            self._save()
            self.is_live, self.note = False, ""
        await self._paint()

    def stop(self, result: ToolResult = STOPPED) -> None:
        self.answer.end("stopped")
        super().stop(result)

    async def answer_now(self) -> bool:
        """End the reasoning of the current answer; return False if it does not reason."""
        if self.answer.phase != "reasoning":
            return False
        await self._server.answer_now(self._answer_id)
        return True

    async def tick(self) -> None:
        """Paint the new text, and store it once a second."""
        if not self.answer.is_live:
            return
        self._n_ticks += 1
        if (self._shown, self.answer.n_frames) != self._painted:
            await self._paint()
        if self._n_ticks % _SAVE_EVERY == 0:
            self._save()

    async def begin_call(self, call: ToolCall) -> None:
        self._note(f"running {call.name}")

    async def end_call(self, call: ToolCall, result: ToolResult) -> None:
        self.note = ""
        await self._view.add_turn(self._conversation.add_result(call.name, result))

    async def begin_answer(self) -> None:
        turn = self._conversation.begin_answer(after=self._turn)
        await self._view.show_answer(turn, is_new=True)
        self._begin(turn)

    def tell(self, notice: str) -> None:
        self._view.app.notify(notice, timeout=READ_S, markup=False)

    def warn(self, error: GptOssError) -> None:
        show_error(self._view.app, error)

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of one answer; ask the user about a prompt that is too long."""
        while True:
            work = self.toolbox.prepare(self._sources_on)
            for problem in await self._until_stopped("starting tools", work) or ():
                self._view.app.notify(problem, severity="warning", markup=False)
            async with aclosing(self._stream()) as events:
                async for event in events:
                    yield event
            if self._overflow is None:
                return
            way = await self._choose_way(self._overflow)
            turn = self._turn
            if way == SUMMARISE and (summary := await self._summarise()):
                turn = self._conversation.go_on_with(summary)
                await self._view.show_answer(turn, is_new=False)
            elif way is None or way == SUMMARISE:
                self.is_given_up = True
                return
            else:
                self._conversation.set_option(way.option, way.value)
            self._begin(turn)

    async def _stream(self) -> AsyncGenerator[ChatEvent, None]:
        answer = self.answer
        try:
            streamed = self._server.stream_chat(self._body(), self._note_id)
            async with aclosing(streamed) as events:
                async for event in events:
                    if isinstance(event, Growing) and answer.growth is None:
                        self.tell(
                            f"The prompt has {event.n_prompt:,} tokens, so the model is loaded "
                            f"again: its context grows from {event.n_ctx_before:,} to "
                            f"{event.n_ctx:,}."
                        )
                    is_first = answer.phase == "waiting"
                    yield event
                    if is_first and answer.phase != "waiting":
                        self._view.app.call_later(self._paint)  # without waiting for the timer
            answer.end("failed", "the answer ended early")
        except GptOssError as error:
            if isinstance(error, ContextOverflowError) and error.n_prompt is not None:
                self._overflow = error
            answer.fail(error)
        except Exception:
            answer.end("failed", "internal error")
            raise
        self._save()
        await self._paint()

    async def _paint(self) -> None:
        async with self._painting:  # the timer has its own task alongside the screen's
            shown = self._shown
            self._painted = shown, self.answer.n_frames
            if shown is not None:
                await shown.show(self.answer)

    def _save(self) -> None:
        """Store the partial answer; it continues if the disk refuses that."""
        self._turn = self._conversation.keep(self._turn, self.answer)
        if (shown := self._shown) is not None:
            shown.turn = self._turn
        try:
            self._conversation.store()
        except HistoryError as error:  # the next call tries it again, and need not say it again
            if not self._is_refused:
                show_error(self._view.app, error)
            self._is_refused = True
        else:
            self._is_refused = False

    def _note(self, note: str) -> None:
        self.note = note
        self._view.show_status()

    def _note_id(self, answer_id: str) -> None:
        self._answer_id = answer_id

    def _body(self) -> dict[str, Any]:
        body = self._conversation.request(self._turn, self.toolbox.instructions)
        tools = self.toolbox.declared()
        return body | ({"tools": tools} if tools else {})

    async def _choose_way(self, error: ContextOverflowError) -> Way | None:
        n_ctx = larger_context(error)
        fits = await self._server.fits(n_ctx) if n_ctx else {}
        conversation = self._conversation
        ways = ways_for(
            n_ctx,
            fits.get(self._turn.model),
            can_drop=conversation.can_drop,
            can_summarise=conversation.can_summarise,
        )
        text = f"The conversation does not fit.\n{overflow_text(error)}"
        ask = partial(self._view.question.choose, text, list(ways))
        n = await self._asked("the prompt does not fit", ask)
        return None if n is None else [*ways.values()][n]

    async def _summarise(self) -> str | None:
        async def receive() -> str:
            answer = Answer()
            body = self._conversation.summary_request()
            async with aclosing(self._server.stream_chat(body)) as events:
                async for event in events:
                    answer.add(event)
                    self.note = f"summarising: {answer.n_frames} tokens"
            return answer.content

        return await self._until_stopped("summarising", receive())

    async def _asked(self, note: str, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T | None:
        """Return the answer to a question, which is asked again when the user comes back."""
        self._view.app.bell()

        async def answer() -> _T:
            is_told = False
            while True:
                if self._is_shown:
                    asked = asyncio.create_task(ask())
                    try:
                        while self._is_shown and not asked.done():
                            await asyncio.wait([asked], timeout=TICK_S)
                        if asked.done():
                            return asked.result()
                    finally:
                        self._view.question.close()
                        asked.cancel()
                        await asyncio.wait([asked])
                if not is_told:
                    is_told = True
                    self.tell(f"“{self._conversation.title}” waits for you: {note}")
                await asyncio.sleep(TICK_S)

        return await self._until_stopped(note, answer())

    async def _until_stopped(self, note: str, work: Coroutine[Any, Any, _T]) -> _T | None:
        self._note(note)
        try:
            return await self.until_stopped(work)
        finally:
            self.note = ""

    async def decide(self, tool: RunnableTool, arguments: Arguments) -> Decision | None:
        ask = partial(_decision_on, self._view, tool, arguments)
        decision = await self._asked(f"may it run {tool.name}?", ask)
        if decision is not None and decision.scope is not None:
            self._note(f"running {tool.name}")
        return decision


async def _decision_on(view: ChatView, tool: RunnableTool, arguments: Arguments) -> Decision | None:
    question = view.question

    def tell(n_unseen: int) -> None:
        question.tell(f"{counted(n_unseen, 'line')} not seen: PgUp, PgDn" if n_unseen else "")

    call = CallView(what_runs(tool, arguments), tell)
    await view.transcript.ask(call)
    try:
        return await decide(tool, question.choose, question.reason, lambda: call.n_unseen)
    finally:
        await call.remove()
