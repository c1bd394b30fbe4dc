"""A source of tools for tests, in the place of a server or of something built in."""

from collections.abc import Iterable, Sequence

from gptoss_local.base.errors import ToolError
from gptoss_local.talk.tools import Page, RunnableTool, Toolbox
from gptoss_local.talk.tools.consent import Consents
from gptoss_local.talk.tools.tool import Run


class OwnSource:
    """A source that has the tools that it is given.

    Attributes:
        chats: The pages of each chat that was opened.
        n_closed: How often it was ended.
    """

    is_mcp = False
    instructions = ""

    def __init__(
        self,
        name: str,
        about: str,
        runs: dict[str, Run],
        *,
        is_on: bool = True,
        problem: str = "",
        parameters: dict[str, object] | None = None,
    ) -> None:
        self.name, self.about, self.description, self.is_on = name, about, "", is_on
        self.chats: list[list[Page]] = []
        self.n_closed = 0
        self.problem = problem
        schema = parameters or {"type": "object", "properties": {}}
        self._tools = [
            RunnableTool(each, "", schema, run, about, name, is_built_in=each == "python")
            for each, run in runs.items()
        ]

    async def tools(self) -> Sequence[RunnableTool]:
        if self.problem:
            raise ToolError(self.problem)
        return self._tools

    async def new_chat(self, pages: Iterable[Page] = ()) -> None:
        self.chats.append(list(pages))

    async def close(self) -> None:
        self.n_closed += 1


def toolbox_of(*sources: OwnSource) -> Toolbox:
    """Return a toolbox that keeps its permissions in memory."""
    return Toolbox(sources, Consents(None))
