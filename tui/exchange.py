"""A message until the model's last word: answers, and the calls of tools between them.

Runs as one worker of the screen, from top to bottom; what it waits for, Esc ends.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from tui.answer import Answer
from tui.conversation import Conversation
from tui.history import Turn
from tui.running_answer import RunningAnswer
from tui.screens.approval import ApprovalDialog, Decision
from tui.screens.overflow import SUMMARISE, OverflowDialog, Way, larger_context
from tui.tools import ToolResult
from tui.widgets.turn_view import AssistantTurnView

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen

_T = TypeVar("_T")

_MAX_ROUNDS = 12
_STOPPED = ToolResult("The user stopped this call.", is_error=True)
_TOO_MANY = ToolResult("Not run: too many calls without an answer.", is_error=True)


class Exchange:
    """What begins with a message of the user.

    Attributes:
        note: What happens while no answer streams, for the status line.
        is_live: It is not over yet.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._running: RunningAnswer | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self.note = ""
        self.is_live = True

    @property
    def answer(self) -> Answer | None:
        """The newest one."""
        return self._running.answer if self._running is not None else None

    @property
    def ended_well(self) -> bool:
        is_done = self.answer is not None and self.answer.phase == "done"
        return is_done and not (self.is_live or self._is_stopped)

    async def run(self, turn: Turn, view: AssistantTurnView) -> None:
        """Stream into `turn`, call what it asks for, and let the model go on with the results."""
        conversation = self._conversation
        try:
            for n_rounds in range(_MAX_ROUNDS + 1):
                turn = await self._answer(turn, view)
                if turn.state != "done" or not turn.tool_calls:
                    return
                if n_rounds == _MAX_ROUNDS:
                    self._screen.notify(f"Stopped after {n_rounds} rounds of tools.")
                    await self._call_tools(turn, _TOO_MANY)
                    return
                await self._call_tools(turn)
                if self._is_stopped:
                    return
                turn = conversation.begin_answer()
                added = await self._screen.transcript.add(turn)
                assert isinstance(added, AssistantTurnView)
                view = added
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

    @property
    def _conversation(self) -> Conversation:
        return self._screen.conversation

    async def _answer(self, turn: Turn, view: AssistantTurnView) -> Turn:
        """Stream one answer; one that does not fit is sent again as the user chooses."""
        screen = self._screen
        while True:
            running = self._running = RunningAnswer(self._conversation, turn, view)
            await running.run(screen.server, self._body())
            if not running.was_too_long:
                return running.turn
            way = await self._choose_way()
            if way == SUMMARISE and (summary := await self._summarise()):
                turn = self._conversation.go_on_with(summary)
                await screen.show_branch()
                last = screen.transcript.last_answer()
                assert last is not None
                view = last
            elif way is None or way == SUMMARISE:
                screen.dialogue.take_back_question()
                return running.turn
            else:
                self._conversation.set_option(way.option, way.value)

    def _body(self) -> dict[str, Any]:
        tools = self._screen.toolbox.declared()
        return self._conversation.request() | ({"tools": tools} if tools else {})

    async def _choose_way(self) -> Way | None:
        """Ask what to do about a prompt that does not fit."""
        screen = self._screen
        size = await screen.server.prompt_size(self._body())
        n_ctx = larger_context(size)
        fits = await screen.server.fits(n_ctx) if n_ctx else {}
        conversation = self._conversation
        dialog = OverflowDialog(
            size,
            n_ctx,
            fits.get(conversation.model),
            can_drop=conversation.can_drop,
            can_summarise=conversation.can_summarise,
        )
        way: Way | None = await screen.app.push_screen_wait(dialog)
        return way

    async def _summarise(self) -> str | None:
        """What the model says of all before the last question; nothing if that was stopped."""

        async def receive() -> str:
            answer = Answer()
            body = self._conversation.summary_request()
            async with aclosing(self._screen.server.stream_chat(body)) as frames:
                async for frame in frames:
                    answer.add(frame)
                    self.note = f"summarising: {answer.n_frames} tokens"
            return answer.content

        return await self._until_stopped("summarising", receive())

    async def _until_stopped(self, note: str, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Do something that is no answer; None if Esc ended it."""
        self.note = note
        self._screen.show_status()
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
            added = self._conversation.add_result(name, result)
            await self._screen.transcript.add(added)

    async def _run_if_allowed(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if self._is_stopped:
            return _STOPPED
        toolbox = self._screen.toolbox
        if name in toolbox.on and name not in toolbox.trusted:
            self.note = f"may it run {name}?"
            self._screen.show_status()
            decision: Decision | None = await self._screen.app.push_screen_wait(
                ApprovalDialog(toolbox.tools[name], arguments)
            )
            if decision is None:
                self._is_stopped = True
                return _STOPPED
            if not decision.is_allowed:
                return ToolResult(f"The user denied this call. {decision.reason}".strip(), True)
            if decision.is_for_chat:
                toolbox.trusted.add(name)
        return (
            await self._until_stopped(f"running {name}", toolbox.run(name, arguments)) or _STOPPED
        )
