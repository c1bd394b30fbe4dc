"""A message until the model's last word: answers, and the calls of tools between them.

Runs as one worker of the screen, from top to bottom; what it waits for, Esc ends.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from gptoss_local.errors import ContextOverflowError
from gptoss_local.talk.answer import Answer, with_printable_text
from gptoss_local.talk.conversation import refusal_of
from gptoss_local.talk.conversation.calls import TOO_MANY, Decision, denied
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import Turn
from gptoss_local.talk.loop import STOPPED
from gptoss_local.talk.tools import Arguments, Tool, Toolbox, ToolResult
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
    ) -> None:
        self._view = view
        self._conversation = conversation
        self._server = server
        self._toolbox = toolbox
        self._limit = toolbox.loop_limit()
        self._running: RunningAnswer | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self.note = ""
        self.is_live = True
        self.is_given_up = False

    @property
    def answer(self) -> Answer | None:
        """The newest one."""
        return self._running.answer if self._running is not None else None

    @property
    def ended_well(self) -> bool:
        is_done = self.answer is not None and self.answer.phase == "done"
        return is_done and not (self.is_live or self._is_stopped)

    async def run(self, turn: Turn, shown: AssistantTurnView) -> None:
        """Stream into `turn`, call what it asks for, and continue with the results."""
        try:
            while True:
                turn = await self._answer(turn, shown)
                if turn.state != "done" or not turn.tool_calls:
                    return
                if limit := self._limit.reached():
                    self._view.app.notify(f"Stopped after {limit}.")
                    await self._call_tools(turn, TOO_MANY)
                    return
                await self._call_tools(turn)
                if self._is_stopped:
                    return
                turn = self._conversation.begin_answer()
                shown = await self._view.show_answer(turn, is_new=True)
        finally:
            self.is_live, self.note = False, ""

    def stop(self) -> None:
        """End what runs now, and go no further; what there is stays."""
        self._is_stopped = True
        if self._running is not None and self._running.answer.is_live:
            self._running.stop()
        if self._task is not None:
            self._task.cancel()

    async def tick(self) -> None:
        if self._running is not None and self._running.answer.is_live:
            await self._running.tick()

    async def _answer(self, turn: Turn, shown: AssistantTurnView) -> Turn:
        """Stream one answer; one that does not fit is sent again as the user chooses."""
        while True:
            running = self._running = RunningAnswer(self._conversation, turn, shown)
            await self._prepare_tools()
            await running.run(self._server, self._body(turn))
            if running.overflow is None:
                return running.turn
            way = await self._choose_way(running.overflow)
            if way == SUMMARISE and (summary := await self._summarise()):
                turn = self._conversation.go_on_with(summary)
                shown = await self._view.show_answer(turn, is_new=False)
            elif way is None or way == SUMMARISE:
                self.is_given_up = True
                return running.turn
            else:
                self._conversation.set_option(way.option, way.value)

    def _body(self, answer: Turn) -> dict[str, Any]:
        tools = self._toolbox.declared()
        return self._conversation.request(answer) | ({"tools": tools} if tools else {})

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
        if self._is_stopped:
            return None
        self.note = note
        self._view.show_status()
        answer: _T | None = await self._view.app.push_screen_wait(dialog)
        return answer

    async def _until_stopped(self, note: str, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Do something that is not an answer; None if Esc ended it."""
        self.note = note
        self._view.show_status()
        task = self._task = asyncio.create_task(work)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()  # does nothing to one that is over
            self.note = ""
        return None if task.cancelled() else task.result()

    async def _call_tools(self, turn: Turn, refusal: ToolResult | None = None) -> None:
        """Add a result for each call of an answer, so that none of them stays open."""
        for call in turn.tool_calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            result = refusal or await self._run_if_allowed(name, arguments)
            await self._view.add_turn(self._conversation.add_result(name, result))

    async def _run_if_allowed(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if self._is_stopped:
            return STOPPED
        call = self._toolbox.call(name, arguments)
        refusal = await refusal_of(self._toolbox, self._limit, call, self._ask_about)
        if refusal is not None:
            return refusal
        run = self._toolbox.run_call(call)
        return await self._until_stopped(f"running {name}", run) or STOPPED

    async def _ask_about(self, tool: Tool, arguments: Arguments) -> ToolResult | None:
        """Ask whether a call may run; returns what it comes to if not."""
        dialog = ApprovalDialog(tool, arguments)
        decision: Decision | None = await self._ask(f"may it run {tool.name}?", dialog)
        if decision is None:
            self._is_stopped = True
            return STOPPED
        if decision.scope is None:
            return denied(decision.reason)
        if decision.scope != "once":
            with errors_shown(self._view.app):  # it holds for this chat where it cannot be kept
                self._toolbox.allow(tool, decision.scope)
        return None

    async def _prepare_tools(self) -> None:
        news = await self._until_stopped("starting tools", self._toolbox.prepare())
        for problem in news or ():
            self._view.app.notify(problem, severity="warning", markup=False)
