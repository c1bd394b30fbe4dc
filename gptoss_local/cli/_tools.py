"""Tools of `gptoss run --tools`: run here, after a question on the terminal."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.events import ChatEvent, ToolCall
from gptoss_local.base.settings import Settings
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._output import print_error, say
from gptoss_local.cli._question import echo, keep_typed
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import names_in
from gptoss_local.talk.loop import STOPPED, Exchange, LoopEvent
from gptoss_local.talk.tools import Arguments, RunnableTool, ToolResult, ToolSources
from gptoss_local.talk.what_runs import CallPart, Decision, asked_text, decide, pretty, what_runs


class RunTools(Exchange):
    """Declares tools and runs their calls, in an event loop that stands still in between.

    `chosen` lists sources, by default those of new chats; `allowed` runs without a question.
    """

    def __init__(
        self, chat: Chat, settings: Settings, folder: Path, chosen: str, allowed: str
    ) -> None:
        super().__init__()
        self._chat = chat
        self._runner = asyncio.Runner()
        self._sources = ToolSources(settings, folder)
        self.toolbox = self._sources.toolbox()
        self._allowed = names_in(allowed)
        self._open_calls: list[ToolCall] = []
        if names := names_in(chosen):
            known = {group.name for group in self.toolbox.groups()}
            if unknown := names - known:
                hint = f"There are {', '.join(sorted(known))}; --tools= offers those that are on."
                raise UsageError(f"there is no tool '{min(unknown)}'", hint=hint)
            self.toolbox.on = names

    def lead(self) -> None:
        """Show answers and calls until the last word; calls that Ctrl-C ends have a result, too."""
        self._open_calls.clear()
        try:
            self._wait(self.follow_all(self.toolbox))
        finally:
            if self._chat.answer.phase == "done":
                for call in self._open_calls:
                    self._chat.take(call, STOPPED)

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

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        self.answer = self._chat.answer = Answer()
        with closing(self._chat.events(await self._declared())) as events:
            for event in events:
                yield event

    async def _declared(self) -> list[dict[str, Any]]:
        for problem in await self.toolbox.prepare():
            say(problem)
        groups = {group.name for group in self.toolbox.groups()}
        known = groups | set(self.toolbox.tools)
        if unknown := self._allowed - known:
            hint = f"There are {', '.join(sorted(known))}."
            raise UsageError(f"--allow: there is no tool '{min(unknown)}'", hint=hint)
        return self.toolbox.declared()

    def close(self) -> None:
        async def end() -> None:
            await self.toolbox.close()
            await self._sources.close()

        with self._runner:
            self._runner.run(end())

    async def follow(self, event: LoopEvent) -> None:
        if isinstance(event, ToolCall):
            self._open_calls.append(event)
        await super().follow(event)
        self._chat.printer.show(event)

    async def begin_call(self, call: ToolCall) -> None:
        made, printer = self.toolbox.call(call.name, call.arguments), self._chat.printer
        if made.tool is None:
            printer.show_call(call.name, [CallPart("arguments", pretty(call.arguments))])
        elif not self.must_ask(made.tool):
            printer.show_call(call.name, what_runs(made.tool, made.arguments))

    async def end_call(self, call: ToolCall, result: ToolResult) -> None:
        self._open_calls.remove(call)
        self._chat.printer.show_result(call.name, result)
        self._chat.take(call, result)

    async def begin_answer(self) -> None: ...

    def tell(self, notice: str) -> None:
        say(notice)

    def warn(self, error: UsageError) -> None:
        print_error(error)

    def must_ask(self, tool: RunnableTool) -> bool:
        is_allowed = not self._allowed.isdisjoint((tool.name, tool.source))
        return not is_allowed and super().must_ask(tool)

    async def decide(self, tool: RunnableTool, arguments: Arguments) -> Decision | None:
        if not sys.stdin.isatty():
            say(f"Not run: {tool.name}. Without a terminal, --allow {tool.name} lets it run.")
            return None
        asked = asked_text(tool)
        say(f"\n{asked}")
        for part in what_runs(tool, arguments):
            say("\n".join(f"  {line}" for line in part.text.split("\n")))

        async def choose(text: str, labels: Sequence[str]) -> int | None:
            if text != asked:
                say(text)
            return _choose(labels)

        async def reason() -> str:
            return _read("Why not? ") or ""

        return await decide(tool, choose, reason)


def _choose(labels: Sequence[str]) -> int | None:
    for n, label in enumerate(labels, 1):
        say(f"  {n} {label}")
    while (line := _read(f"A number, or Enter for {labels[0]}: ")) is not None:
        typed = line or "1"
        if typed.isdecimal() and 1 <= int(typed) <= len(labels):
            return int(typed) - 1
    return None


def _read(question: str) -> str | None:
    keep_typed()
    with echo(is_on=True):
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
    return line.strip() if line else None
