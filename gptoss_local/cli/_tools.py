"""Tools of `gptoss run --tools`: run here, after a question on the terminal."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from gptoss_local.cli._output import print_error, say
from gptoss_local.errors import UsageError
from gptoss_local.settings import Settings
from gptoss_local.talk.conversation.calls import TOO_MANY, Decision, denied
from gptoss_local.talk.conversation.tool_choice import names_in
from gptoss_local.talk.conversation.what_runs import (
    Part,
    about_text,
    always_text,
    pretty,
    what_runs,
)
from gptoss_local.talk.loop import UNANSWERED
from gptoss_local.talk.tools import Group, Tool, ToolResult, ToolSources

_SCOPES: dict[str, Literal["once", "chat", "always"]] = {
    "y": "once",
    "yes": "once",
    "a": "chat",
    "A": "always",
}


class Shows(Protocol):
    """Shows calls and what they come to; `Printer` does."""

    def show_call(self, name: str, parts: Sequence[Part]) -> None: ...

    def show_result(self, name: str, result: ToolResult) -> None: ...


class RunTools:
    """Declares tools and runs their calls, in an event loop that stands still in between.

    Args:
        settings: The user's.
        folder: Where programs run.
        chosen: Names of sources with commas between them; empty: those that new chats have.
        allowed: Names of tools or of sources that run without a question.

    Raises:
        UsageError: there is no such source.
    """

    def __init__(self, settings: Settings, folder: Path, chosen: str, allowed: str) -> None:
        self._runner = asyncio.Runner()
        self._sources = ToolSources(settings, folder)
        self._toolbox = self._sources.toolbox()
        self._allowed = names_in(allowed)
        self._limit = self._toolbox.loop_limit()
        if names := names_in(chosen):
            known = {group.name for group in self._toolbox.groups()}
            if unknown := names - known:
                hint = f"There are {', '.join(sorted(known))}."
                raise UsageError(f"there is no tool '{min(unknown)}'", hint=hint)
            self._toolbox.on = names

    def begin(self) -> None:
        """Begin a loop of answers and calls, which has its limit."""
        self._limit = self._toolbox.loop_limit()

    def declared(self) -> list[dict[str, Any]]:
        """Return `tools` of a request; says which source does not answer.

        Raises:
            UsageError: a tool that was allowed is not there.
        """
        for problem in self._runner.run(self._toolbox.prepare()):
            say(problem)
        groups = {group.name for group in self._toolbox.groups()}
        known = groups | set(self._toolbox.tools)
        if unknown := self._allowed - known:
            hint = f"There are {', '.join(sorted(known))}."
            raise UsageError(f"--allow: there is no tool '{min(unknown)}'", hint=hint)
        return self._toolbox.declared()

    def results(self, calls: Sequence[dict[str, Any]], printer: Shows) -> Iterator[ToolResult]:
        """Run the calls of an answer, one after the other, as far as the user allows them.

        Args:
            calls: As `message.tool_calls` of Ollama's API has them.
            printer: Shows them and their results.

        Raises:
            KeyboardInterrupt: Ctrl-C ended the call that ran.
        """
        limit = self._limit.reached()
        if limit:
            say(f"Stopped after {limit}.")
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            result = TOO_MANY if limit else self._result(name, arguments, printer)
            printer.show_result(name, result)
            yield result

    @staticmethod
    def is_limit(results: Sequence[ToolResult]) -> bool:
        """Return whether the loop is over with these results."""
        return TOO_MANY in results

    def groups(self) -> list[Group]:
        """Return the sources, for the user to choose among."""
        return self._toolbox.groups()

    def switch(self, name: str) -> bool:
        """Turn a source on or off; returns whether it is on now. Raises UsageError: no such one."""
        return self._toolbox.switch(name)

    def close(self) -> None:
        """End all that tools have started."""

        async def end() -> None:
            await self._toolbox.close()
            await self._sources.close()

        with self._runner:
            self._runner.run(end())

    def _result(self, name: str, arguments: dict[str, Any], printer: Shows) -> ToolResult:
        call = self._toolbox.call(name, arguments)
        tool = call.tool
        parts = what_runs(tool, call.arguments) if tool else [Part("arguments", pretty(arguments))]
        if tool is None or not self._must_ask(tool):
            printer.show_call(name, parts)
        elif (refusal := self._ask(tool, parts)) is not None:
            return refusal
        return self._runner.run(self._toolbox.run_call(call))

    def _must_ask(self, tool: Tool) -> bool:
        is_allowed = not self._allowed.isdisjoint((tool.name, tool.source))
        return not is_allowed and self._toolbox.needs_consent(tool)

    def _ask(self, tool: Tool, parts: Sequence[Part]) -> ToolResult | None:
        """Return what a call comes to that may not run; None if it may."""
        if not sys.stdin.isatty():
            say(f"Not run: {tool.name}. Without a terminal, --allow {tool.name} lets it run.")
            return UNANSWERED
        asked_s = time.monotonic()
        decision = _decision(tool, parts)
        self._limit.pause(time.monotonic() - asked_s)
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


def _decision(tool: Tool, parts: Sequence[Part]) -> Decision | None:
    """Ask on the terminal until the answer is one; None at the end of the input."""
    say(f"\nThe model asks to run {tool.name}. It {about_text(tool)}.")
    for part in parts:
        say("\n".join(f"  {line}" for line in part.text.split("\n")))
    keys = f"y once, a always in this chat, A always for {always_text(tool)}, n [REASON] no: "
    while True:
        _forget_typed()
        print(keys, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return None
        word, _, reason = line.strip().partition(" ")
        if scope := _SCOPES.get(word):
            return Decision(scope)
        if word in ("n", "no"):
            return Decision(None, reason.strip())


def _forget_typed() -> None:
    """Drop what was typed before the question was there."""
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
