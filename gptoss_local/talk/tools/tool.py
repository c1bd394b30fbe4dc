"""Define one tool, and its source."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

MAX_OUTPUT_CHARACTERS = 32 * 1024


class Page(NamedTuple):
    """A page that the model may cite as `【cursor†L3-L7】`; search results have no `url`."""

    cursor: int
    url: str
    title: str


class ToolResult(NamedTuple):
    """The result of a call; `text` is for the model, and says why if it `is_error`."""

    text: str
    is_error: bool = False
    seconds: float = 0.0
    pages: tuple[Page, ...] = ()


Scope = Literal["chat", "always"]
Kind = Literal["code", "command", "arguments", "diff"]  # the look of a part of a call
Arguments = Mapping[str, Any]
Run = Callable[[Arguments], Awaitable[str | ToolResult]]


@dataclass(frozen=True, slots=True)
class RunnableTool:
    """One function that the model may call.

    `run` and `resolve` raise UsageError for mistakes that the model may correct. The latter fills
    in the arguments, such as the address of a link, without asking others: so the user sees all
    that `run` gets, and is always asked where something was filled in, even if it never `asks`.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    run: Run
    about: str  # for the user, after "It"
    source: str
    argv: Callable[[Arguments], list[str]] | None = None  # None: it runs no program
    timeout_s: float = 120.0
    asks: bool = True
    identity: str = ""  # ends a lasting permission when it changes; without secrets
    resolve: Callable[[Arguments], Arguments] = field(default=dict, kw_only=True)
    is_built_in: bool = field(default=False, kw_only=True)  # harmony declares its parameters
    own_name: str = field(default="", kw_only=True)  # its source's, where the model cannot say it
    lasting: tuple[Scope, ...] = field(default=("chat", "always"), kw_only=True)
    shows: tuple[Kind, str] | None = field(default=None, kw_only=True)  # the argument that counts
    has_effects: bool = field(default=False, kw_only=True)  # equal calls may differ then

    def declaration(self) -> dict[str, Any]:
        function: dict[str, Any] = {"name": self.name, "description": self.description}
        if not self.is_built_in:
            function["parameters"] = self.parameters
        return {"type": "function", "function": function}


class ToolSource(Protocol):
    """A provider of tools for one chat; `about` describes it for the user, after "It"."""

    name: str
    about: str
    description: str
    is_on: bool
    is_mcp: bool = False
    instructions: str = ""  # for the model, while it is on

    async def tools(self) -> Sequence[RunnableTool]:
        """Return its tools; called before each request while it is on, so cheap after the first."""

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        """Forget the chat before; a stored one may cite `pages`, oldest first."""
        return  # most have no state, and nothing outlives their calls

    async def close(self) -> None:
        """End its processes for this toolbox."""
        return
