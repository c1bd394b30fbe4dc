"""The tools of one chat, used from one event loop. Front ends ask the user."""

import asyncio
import itertools
import logging
import re
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import ToolError, UsageError
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.python.driver import Output
from gptoss_local.talk.tools.tool import (
    MAX_OUTPUT_CHARACTERS,
    Arguments,
    Page,
    RunnableTool,
    Scope,
    ToolResult,
    ToolSource,
)
from gptoss_local.talk.tools.work import Work

FIND_TOOLS = "find_tools"
_N_FOUND = 5
_CHARACTERS_PER_TOKEN = 4  # about
_N_NAMES = 60
_WORD = re.compile(r"[a-z0-9]+")


def _finder(hidden: Sequence[RunnableTool], found: set[str]) -> RunnableTool:
    """Return `find_tools`, which adds names from `hidden` to `found`, to be declared next."""
    names = sorted(tool.name for tool in hidden)
    listed = ", ".join(names[:_N_NAMES]) + (", ..." if len(names) > _N_NAMES else "")

    async def run(arguments: Arguments) -> str:
        query = str(arguments.get("query", ""))
        best = _find(query, hidden)
        if not best:
            raise UsageError(f"nothing fits {query!r}; there are {listed}")
        found.update(tool.name for tool in best)
        lines = "\n".join(f"- {tool.name}: {tool.description}" for tool in best)
        return f"These functions can be called from now on:\n{lines}"

    return RunnableTool(
        FIND_TOOLS,
        f"Finds functions that are not listed here by what they do. There are {len(hidden)} more: "
        f"{listed}",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Names or keywords"}},
            "required": ["query"],
        },
        run,
        "searches the names and descriptions of tools",
        source="",
        asks=False,
    )


def _find(query: str, tools: Sequence[RunnableTool]) -> list[RunnableTool]:
    wanted = set(_words(query))
    scored = []
    for tool in tools:
        name, about = set(_words(tool.name)), set(_words(tool.description))
        score = 3 * len(wanted & name) + len(wanted & about) + 10 * (tool.name in query)
        if score:
            scored.append((-score, tool.name, tool))
    return [tool for _, _, tool in sorted(scored, key=lambda each: each[:2])[:_N_FOUND]]


def _words(text: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return _WORD.findall(spaced.lower())


MAX_DECLARED_TOKENS = 6_000
"""About, of all declarations; further tools are offered through a search."""

_log = logging.getLogger("gptoss")


class Group(NamedTuple):
    name: str
    about: str
    description: str
    is_on: bool
    is_mcp: bool
    tools: tuple[RunnableTool, ...]
    problem: str


class Call(NamedTuple):
    """A call to ask about and run, its arguments resolved; see `RunnableTool.resolve`."""

    name: str
    tool: RunnableTool | None
    arguments: Arguments
    error: Exception | None = None


class Toolbox:
    """The tools of a chat: which are on and trusted. The first source of a name keeps it.

    `n_rounds` and `loop_s` limit the calls of one exchange, and the time that they take.
    """

    def __init__(
        self,
        sources: Sequence[ToolSource],
        consents: Consents,
        *,
        n_rounds: int = 30,
        loop_s: float = 900.0,
    ) -> None:
        self._sources = list(sources)
        self.work = next((each for each in sources if isinstance(each, Work)), None)
        self.n_rounds, self.loop_s = n_rounds, loop_s
        self._consents = consents
        self._found: set[str] = set()  # by search, so declared from then on
        self._problems: dict[str, str] = {}
        self._by_source: dict[str, tuple[RunnableTool, ...]] = {}
        self.tools: dict[str, RunnableTool] = {}
        """Tools by name; only of sources that are on and were prepared."""
        self.on: set[str] = {source.name for source in sources if source.is_on}
        self.trusted: set[str] = set()
        """Tools that need no approval in the open chat."""

    async def prepare(self, on: Container[str] | None = None) -> list[str]:
        """Prepare the sources that are on, starting servers; return which are dead, and why."""
        names = self.on if on is None else on
        on_now = [source for source in self._sources if source.name in names]
        listed = await asyncio.gather(*map(self._tools_of, on_now))
        news = []
        before, self.tools = self.tools, {}
        for source, (tools, problem) in zip(on_now, listed, strict=True):
            if problem and self._problems.get(source.name) != problem:
                news.append(problem)
            self._problems[source.name] = problem
            renamed = []
            for tool in tools:
                own = _with_free_name(tool, self.tools)
                self.tools[own.name] = own
                renamed.append(own)
            self._by_source[source.name] = tuple(renamed)
        self.trusted &= {
            name
            for name, tool in self.tools.items()
            if name not in before or _what(before[name]) == _what(tool)
        }
        return news

    async def _tools_of(self, source: ToolSource) -> tuple[tuple[RunnableTool, ...], str]:
        try:
            return tuple(await source.tools()), ""
        except (ToolError, UsageError) as error:
            return (), f"{source.name}: {error.message}"

    def groups(self) -> list[Group]:
        return [
            Group(
                source.name,
                source.about,
                source.description,
                source.name in self.on,
                source.is_mcp,
                self._by_source.get(source.name, ()),
                self._problems.get(source.name, ""),
            )
            for source in self._sources
        ]

    def switch(self, name: str) -> bool:
        names = [source.name for source in self._sources]
        if name not in names:
            raise UsageError(f"there is no tool '{name}'", hint=f"There are {', '.join(names)}.")
        self.on ^= {name}
        return name in self.on

    def set_servers(self, sources: Sequence[ToolSource]) -> None:
        """Replace the MCP servers; new ones are on as they say."""
        names = {source.name for source in self._sources}
        self._sources = [each for each in self._sources if not each.is_mcp] + list(sources)
        self.on |= {each.name for each in sources if each.is_on and each.name not in names}
        for name in names - {source.name for source in self._sources}:
            self._by_source.pop(name, None)

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        self.trusted.clear()
        self._found.clear()
        known = tuple(pages)
        for source in self._sources:
            await source.new_chat(known)

    def declared(self) -> list[dict[str, Any]]:
        return [tool.declaration() for tool in self.offered()]

    def offered(self) -> list[RunnableTool]:
        """Return the tools to declare to the model, after `prepare`."""
        return self._split()[0]

    @property
    def instructions(self) -> str:
        used = self.on - {name for name, problem in self._problems.items() if problem}
        texts = (source.instructions for source in self._sources if source.name in used)
        return "\n\n".join(filter(None, texts))

    def tool(self, name: str) -> RunnableTool | None:
        """Return the tool that a call names; None if the model may not use one of that name."""
        if name == FIND_TOOLS and (hidden := self._split()[1]):
            return _finder(hidden, self._found)
        return self.tools.get(name)

    def needs_consent(self, tool: RunnableTool) -> bool:
        if not tool.asks or tool.name in self.trusted:
            return False
        return not self._consents.has(tool)

    def allow(self, tool: RunnableTool, scope: Scope) -> None:
        """Ask no more: in this chat, or never until the tool changes."""
        if scope not in tool.lasting:
            return
        self.trusted.add(tool.name)
        if scope == "always":
            self._consents.add(tool)

    def call(self, name: str, arguments: Arguments) -> Call:
        try:
            if (tool := self.tool(name)) is None:
                known = ", ".join(each.name for each in self.offered())
                there = f"there are {known}" if known else "there are no tools"
                raise UsageError(f"there is no tool {msgspec.json.encode(name).decode()}; {there}")
            resolved = tool.resolve(arguments)
            asks = tool.asks or resolved != arguments
            return Call(name, replace(tool, asks=asks), resolved)
        except Exception as error:
            return Call(name, None, arguments, error)

    async def run(self, name: str, arguments: Arguments) -> ToolResult:
        return await self.run_call(self.call(name, arguments))

    async def run_call(self, call: Call) -> ToolResult:
        """Run a call that was approved; a failure becomes a result, too."""
        start_s = time.monotonic()
        name, tool = call.name, call.tool
        try:
            if tool is None:
                raise call.error or AssertionError
            try:
                async with asyncio.timeout(tool.timeout_s):
                    made = await tool.run(call.arguments)
            except TimeoutError as error:
                late = f"{name} took longer than {tool.timeout_s:g} s and was stopped"
                raise UsageError(late) from error
        except (UsageError, ToolError) as error:
            made = ToolResult(f"Error: {error.message}", is_error=True)
        except Exception:
            _log.exception("internal error in the tool %s", name)
            made = ToolResult("Error: internal error, see the log", is_error=True)
        result = ToolResult(made) if isinstance(made, str) else made
        output = Output(MAX_OUTPUT_CHARACTERS)
        output.write(result.text)
        return result._replace(text=output.text(), seconds=time.monotonic() - start_s)

    def undo(self) -> str:
        if self.work is None:
            hint = "`gptoss chat --work` makes them, and the page with the setting work_folder."
            raise UsageError("only patches are undone", hint=hint)
        return f"The user took back your patch of {self.work.undo()}."

    async def close(self) -> None:
        for source in self._sources:
            await source.close()

    def _split(self) -> tuple[list[RunnableTool], list[RunnableTool]]:
        """Return declared tools, and those that a search finds; sources stay whole."""
        shown: list[RunnableTool] = []
        hidden: list[RunnableTool] = []
        n_left = MAX_DECLARED_TOKENS
        for source in self._sources:
            tools = [tool for tool in self.tools.values() if tool.source == source.name]
            n_characters = sum(len(msgspec.json.encode(tool.declaration())) for tool in tools)
            n_tokens = n_characters // _CHARACTERS_PER_TOKEN
            if n_tokens <= n_left:
                n_left -= n_tokens
                shown += tools
            else:
                shown += [tool for tool in tools if tool.name in self._found]
                hidden += tools
        if hidden:
            shown.append(_finder(hidden, self._found))
        return shown, hidden


def _with_free_name(tool: RunnableTool, taken: Container[str]) -> RunnableTool:
    """Return a tool under a free name: its own, or with its source before it, or numbered."""
    if tool.name not in taken and tool.name != FIND_TOOLS:
        return tool
    prefixed = f"{re.sub('[^A-Za-z0-9_-]+', '_', tool.source)}_{tool.name}"
    numbered = (f"{prefixed[:60]}_{n}" for n in itertools.count(2))
    names = itertools.chain([prefixed[:64]], numbered)
    return replace(tool, name=next(name for name in names if name not in taken))


def _what(tool: RunnableTool) -> tuple[Any, ...]:
    """Return the facts that the user trusts; another tool of the same name is not trusted."""
    return tool.source, tool.identity, tool.description, tool.parameters
