"""A message until the model's last word: answers, and the calls of tools between them.

Runs as one worker of the screen, from top to bottom; what it waits for, Esc ends.
"""

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from gptoss_local.errors import ContextOverflowError
from gptoss_local.events import ChatEvent
from gptoss_local.talk.answer import Answer, with_printable_text
from gptoss_local.talk.conversation.calls import Decision, denied
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import Turn
from gptoss_local.talk.loop import (
    STOPPED,
    CallBegun,
    CallEnded,
    CallRefused,
    Continued,
    LimitReached,
    Loop,
    LoopEvent,
)
from gptoss_local.talk.tools import Arguments, RunnableTool, Toolbox, ToolResult
from tui.chat_view import ChatView
from tui.conversation import Conversation
from tui.running_answer import RunningAnswer
from tui.screens.approval import ApprovalDialog
from tui.screens.dialog import Dialog
from tui.screens.errors import errors_shown
from tui.screens.overflow import SUMMARISE, OverflowDialog, Way, larger_context
from tui.server import ChatServer
from tui.widgets.turn_view import AssistantTurnView

_T = TypeVar("_T")


class Exchange:
    """One exchange, which begins with a message of the user.

    Attributes:
        note: What happens while no answer streams, for the status line.
        is_live: It is not over yet.
        is_given_up: The prompt does not fit, and the user chose not to send it otherwise.
    """

    def __init__(
        self,
        view: ChatView,
        conversation: Conversation,
        server: ChatServer,
        toolbox: Toolbox,
        turn: Turn,
        shown: AssistantTurnView,
    ) -> None:
        self._view = view
        self._conversation = conversation
        self._server = server
        self._toolbox = toolbox
        self._loop = Loop(self, toolbox, self._ask_about)
        self._turn, self._shown = turn, shown
        self._running = RunningAnswer(conversation, turn, shown)
        self.note = ""
        self.is_live = True
        self.is_given_up = False

    @property
    def answer(self) -> Answer:
        """The newest one."""
        return self._running.answer

    @property
    def ended_well(self) -> bool:
        return self.answer.phase == "done" and not (self.is_live or self._loop.is_stopped)

    async def run(self) -> None:
        """Stream into the turn, call what it asks for, and continue with the results."""
        try:
            async with aclosing(self._loop.run()) as events:
                async for event in events:
                    await self._follow(event)
        finally:  # also when the app ends, which cancels this
            self.answer.end("stopped")
            self._running.save()
            self.is_live, self.note = False, ""
        await self._running.paint()

    def stop(self) -> None:
        """Stop the current answer or call, and the exchange. Keep the partial answer."""
        self.answer.end("stopped")
        self._loop.stop()

    async def tick(self) -> None:
        if self.answer.is_live:
            await self._running.tick()

    async def _follow(self, event: LoopEvent) -> None:
        """Show and store a call, and begin the answer after it."""
        match event:
            case CallBegun(call):
                self._note(f"running {call.name}")
            case CallEnded(call, result) | CallRefused(call, result):
                self.note = ""
                await self._view.add_turn(self._conversation.add_result(call.name, result))
            case Continued():
                self._turn = self._conversation.begin_answer()
                self._shown = await self._view.show_answer(self._turn, is_new=True)
                self._running = RunningAnswer(self._conversation, self._turn, self._shown)
            case LimitReached(limit):
                self._view.app.notify(f"Stopped after {limit}.")

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of one answer; the user chooses what becomes of too long a prompt."""
        while True:
            await self._prepare_tools()
            async with aclosing(self._running.events(self._server, self._body())) as events:
                async for event in events:
                    yield event
            if self._running.overflow is None:
                return
            way = await self._choose_way(self._running.overflow)
            if way == SUMMARISE and (summary := await self._summarise()):
                self._turn = self._conversation.go_on_with(summary)
                self._shown = await self._view.show_answer(self._turn, is_new=False)
            elif way is None or way == SUMMARISE:
                self.is_given_up = True
                return
            else:
                self._turn = self._running.turn
                self._conversation.set_option(way.option, way.value)
            self._running = RunningAnswer(self._conversation, self._turn, self._shown)

    def _note(self, note: str) -> None:
        self.note = note
        self._view.show_status()

    def _body(self) -> dict[str, Any]:
        tools = self._toolbox.declared()
        return self._conversation.request(self._turn) | ({"tools": tools} if tools else {})

    async def _choose_way(self, error: ContextOverflowError) -> Way | None:
        """Ask what to do about a prompt that does not fit."""
        n_ctx = larger_context(error)
        fits = await self._server.fits(n_ctx) if n_ctx else {}
        conversation = self._conversation
        dialog = OverflowDialog(
            error,
            n_ctx,
            fits.get(conversation.model),
            can_drop=conversation.can_drop,
            can_summarise=conversation.can_summarise,
        )
        return await self._ask("the prompt does not fit", dialog)

    async def _summarise(self) -> str | None:
        """Return the model's summary of all before the last question; None if it was stopped."""

        async def receive() -> str:
            answer = Answer()
            body = self._conversation.summary_request()
            async with aclosing(self._server.stream_chat(body)) as frames:
                async for frame in frames:
                    for event in events_of(frame):
                        answer.add(with_printable_text(event))
                    self.note = f"summarising: {answer.n_frames} tokens"
            return answer.content

        return await self._until_stopped("summarising", receive())

    async def _ask(self, note: str, dialog: Dialog[_T | None]) -> _T | None:
        """Show a question once the user does not type; None if Esc ended it."""
        await self._until_stopped(note, self._view.typing.pause())
        if self._loop.is_stopped:
            return None
        self._note(note)
        answer: _T | None = await self._view.app.push_screen_wait(dialog)
        return answer

    async def _until_stopped(self, note: str, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Do something that is not an answer; None if Esc ended it."""
        self._note(note)
        try:
            return await self._loop.until_stopped(work)
        finally:
            self.note = ""

    async def _ask_about(self, tool: RunnableTool, arguments: Arguments) -> ToolResult | None:
        """Ask whether a call may run; returns what it comes to if not."""
        dialog = ApprovalDialog(tool, arguments)
        decision: Decision | None = await self._ask(f"may it run {tool.name}?", dialog)
        if decision is None:
            self._loop.stop()
            return STOPPED
        if decision.scope is None:
            return denied(decision.reason)
        if decision.scope != "once":
            with errors_shown(self._view.app):  # it holds for this chat where it cannot be kept
                self._toolbox.allow(tool, decision.scope)
        self._note(f"running {tool.name}")
        return None

    async def _prepare_tools(self) -> None:
        news = await self._until_stopped("starting tools", self._toolbox.prepare())
        for problem in news or ():
            self._view.app.notify(problem, severity="warning", markup=False)
