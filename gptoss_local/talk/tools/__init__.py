"""Tools that the model may call: the user's programs, MCP servers, `python` and `browser`."""

from gptoss_local.talk.tools.tool import Page, ToolResult
from gptoss_local.talk.tools.sources import ToolSources
from gptoss_local.talk.tools.tool import Arguments, RunnableTool, ToolSource
from gptoss_local.talk.tools.toolbox import Call, Group, LoopLimit, Toolbox

__all__ = [
    "Arguments",
    "Call",
    "Group",
    "LoopLimit",
    "Page",
    "RunnableTool",
    "ToolResult",
    "ToolSource",
    "ToolSources",
    "Toolbox",
]
