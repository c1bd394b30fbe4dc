"""What the model may do: the user's programs, MCP servers, `python` and `browser`.

One `Toolbox` a chat says which tools it has and runs calls. Whoever shows the chat holds the loop
and asks the user.
"""

from gptoss_local.tools.results import Page, ToolResult
from gptoss_local.tools.sources import ToolSources
from gptoss_local.tools.tool import Arguments, Source, Tool
from gptoss_local.tools.toolbox import Group, LoopLimit, Toolbox

__all__ = [
    "Arguments",
    "Group",
    "LoopLimit",
    "Page",
    "Source",
    "Tool",
    "ToolResult",
    "ToolSources",
    "Toolbox",
]
