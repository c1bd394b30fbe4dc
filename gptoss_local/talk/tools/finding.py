"""A tool that finds others, where declaring all of them would take too much of the context."""

import re
from collections.abc import Sequence

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.talk.tools.tool import Arguments, RunnableTool

FIND_TOOLS = "find_tools"
_N_FOUND = 5
_CHARACTERS_PER_TOKEN = 4  # about
_N_NAMES = 60
_WORD = re.compile(r"[a-z0-9]+")


def n_tokens_about(tool: RunnableTool) -> int:
    return len(msgspec.json.encode(tool.declaration())) // _CHARACTERS_PER_TOKEN


def finder(hidden: Sequence[RunnableTool], found: set[str]) -> RunnableTool:
    """Return `find_tools`, which adds names from `hidden` to `found`, to be declared next."""
    names = sorted(tool.name for tool in hidden)
    listed = ", ".join(names[:_N_NAMES]) + (", ..." if len(names) > _N_NAMES else "")

    async def run(arguments: Arguments) -> str:
        query = str(arguments.get("query", ""))
        best = find(query, hidden)
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


def find(query: str, tools: Sequence[RunnableTool]) -> list[RunnableTool]:
    """Return the tools with most of the words in name and description, best first."""
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
