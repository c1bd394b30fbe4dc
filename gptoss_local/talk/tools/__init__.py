"""Tools that the model may call: the user's programs, MCP servers, `python` and `browser`."""

from gptoss_local.talk.tools.sources import ToolSources
from gptoss_local.talk.tools.tool import Arguments, Page, RunnableTool, ToolResult, ToolSource
from gptoss_local.talk.tools.toolbox import Call, Group, Toolbox

__all__ = [
    "Arguments",
    "Call",
    "Group",
    "Page",
    "RunnableTool",
    "ToolResult",
    "ToolSource",
    "ToolSources",
    "Toolbox",
]
