"""MCP servers as sources of tools, by the official SDK, which is imported when needed."""

from gptoss_local.talk.tools.mcp.config import (
    Entry,
    add_server,
    entry_of,
    mcp_path,
    new_entry,
    read_entries,
    remove_server,
    without_entry,
)
from gptoss_local.talk.tools.mcp.server import McpServers, Server

__all__ = [
    "Entry",
    "McpServers",
    "Server",
    "add_server",
    "entry_of",
    "mcp_path",
    "new_entry",
    "read_entries",
    "remove_server",
    "without_entry",
]
