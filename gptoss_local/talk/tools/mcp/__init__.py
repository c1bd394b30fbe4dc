"""MCP servers as sources of tools, by the official SDK, which is imported with the first of them.

The user is asked elsewhere.
"""

from gptoss_local.talk.tools.mcp.config import (
    Entry,
    entry_of,
    mcp_path,
    parse_servers,
    read_entries,
    read_text,
)
from gptoss_local.talk.tools.mcp.edit import without_entry
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.mcp.source import McpServers, McpSource

__all__ = [
    "Entry",
    "McpServers",
    "McpSource",
    "Server",
    "entry_of",
    "mcp_path",
    "parse_servers",
    "read_entries",
    "read_text",
    "without_entry",
]
