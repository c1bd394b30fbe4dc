"""Tools of `gptoss run --tools`: run here, after a question on the terminal."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ToolCall
from gptoss_local.base.settings import Settings
from gptoss_local.cli._output import print_error, say
from gptoss_local.cli._printer import Printer
from gptoss_local.talk.conversation.calls import Decision, denied
from gptoss_local.talk.conversation.tool_choice import names_in
from gptoss_local.talk.conversation.what_runs import (
    Answer,
    CallPart,
    answers_to,
    asked_text,
    doubt,
    pretty,
    what_runs,
)
from gptoss_local.talk.loop import (
    STOPPED,
    UNANSWERED,
    CallBegun,
    CallEnded,
    CallRefused,
    LimitReached,
    Loop,
    Source,
)
from gptoss_local.talk.tools import Arguments, Group, RunnableTool, ToolResult, ToolSources


class RunTools:
    """Declares tools and runs their calls, in an event loop that stands still in between.

    `chosen` lists sources, by default those of new chats; `allowed` runs without a question.
    """

    def __init__(self, settings: Settings, folder: Path, chosen: str, allowed: str) -> None:
        self._runner = asyncio.Runner()
        self._sources = ToolSources(settings, folder)
        self._toolbox = self._sources.toolbox()
        self._allowed = names_in(allowed)
        if names := names_in(chosen):
            known = {group.name for group in self._toolbox.groups()}
            if unknown := names - known:
                hint = f"There are {', '.join(sorted(known))}; --tools= offers those that are on."
                raise UsageError(f"there is no tool '{min(unknown)}'", hint=hint)
            self._toolbox.on = names

    def run(
        self, source: Source, take: Callable[[ToolCall, ToolResult], None], printer: Printer
    ) -> None:
        """Show answers and calls until the last word; `take` gets the result of each call."""
        open_calls: list[ToolCall] = []

        async def follow() -> None:
            loop = Loop(source, self._toolbox, self._ask, must_ask=self._must_ask)
            async with aclosing(loop.run()) as events:
                async for event in events:
                    match event:
                        case ToolCall():
                            open_calls.append(event)
                        case CallBegun(call):
                            self._show_call(call, printer)
                        case CallEnded(call, result) | CallRefused(call, result):
                            open_calls.remove(call)
                            printer.show_result(call.name, result)
                            take(call, result)
                        case LimitReached(limit):
                            say(f"Stopped after {limit}.")
                    printer.show(event)

        try:
            self._wait(follow())
        finally:
            if source.answer.phase == "done":
                for call in open_calls:
                    take(call, STOPPED)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that Ctrl-C ends at once, even if it waits for the keys or the server."""
        loop = self._runner.get_loop()
        task = loop.create_task(work)
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            loop.run_until_complete(asyncio.wait((task,)))
            if not task.cancelled():
                task.exception()
            raise

    async def declared(self) -> list[dict[str, Any]]:
        """Return `tools` of a request; report sources that do not answer."""
        for problem in await self._toolbox.prepare():
            say(problem)
        groups = {group.name for group in self._toolbox.groups()}
        known = groups | set(self._toolbox.tools)
        if unknown := self._allowed - known:
            hint = f"There are {', '.join(sorted(known))}."
            raise UsageError(f"--allow: there is no tool '{min(unknown)}'", hint=hint)
        return self._toolbox.declared()

    def groups(self) -> list[Group]:
        return self._toolbox.groups()

    def switch(self, name: str) -> bool:
        """Turn a source on or off; return whether it is on now. Raises UsageError if unknown."""
        return self._toolbox.switch(name)

    def close(self) -> None:
        async def end() -> None:
            await self._toolbox.close()
            await self._sources.close()

        with self._runner:
            self._runner.run(end())

    def _show_call(self, call: ToolCall, printer: Printer) -> None:
        made = self._toolbox.call(call.name, call.arguments)
        if made.tool is None:
            printer.show_call(call.name, [CallPart("arguments", pretty(call.arguments))])
        elif not self._must_ask(made.tool):
            printer.show_call(call.name, what_runs(made.tool, made.arguments))

    def _must_ask(self, tool: RunnableTool) -> bool:
        is_allowed = not self._allowed.isdisjoint((tool.name, tool.source))
        return not is_allowed and self._toolbox.needs_consent(tool)

    async def _ask(self, tool: RunnableTool, arguments: Arguments) -> ToolResult | None:
        if not sys.stdin.isatty():
            say(f"Not run: {tool.name}. Without a terminal, --allow {tool.name} lets it run.")
            return UNANSWERED
        decision = _decision(tool, what_runs(tool, arguments))
        if decision is None:
            return UNANSWERED
        if decision.scope is None:
            return denied(decision.reason)
        if decision.scope != "once":
            try:
                self._toolbox.allow(tool, decision.scope)
            except UsageError as error:  # it holds until we end
                print_error(error)
        return None


def _decision(tool: RunnableTool, parts: Sequence[CallPart]) -> Decision | None:
    say(f"\n{asked_text(tool)}")
    for part in parts:
        say("\n".join(f"  {line}" for line in part.text.split("\n")))
    answers = answers_to(tool)
    while (answer := _choose(answers)) is not None:
        if answer.scope is None:
            return Decision(None, (answer.has_reason and _read("Why not? ")) or "")
        if not (text := doubt(answer)):
            return Decision(answer.scope)
        say(text)
        if (sure := _choose([answers[0], answer])) is None:
            break
        if sure is answer:
            return Decision(answer.scope)
    return None


def _choose(answers: Sequence[Answer]) -> Answer | None:
    for n, answer in enumerate(answers, 1):
        say(f"  {n} {answer.label}")
    while (line := _read(f"A number, or Enter for {answers[0].label}: ")) is not None:
        typed = line or "1"
        if typed.isdecimal() and 1 <= int(typed) <= len(answers):
            return answers[int(typed) - 1]
    return None


def _read(question: str) -> str | None:
    _forget_typed()
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None


def _forget_typed() -> None:
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
