"""MCP servers as sources of tools, by the official SDK, which is imported when needed."""

from gptoss_local.talk.tools.mcp.config import (
    Entry,
    entry_of,
    mcp_path,
    parse_servers,
    read_entries,
    read_text,
)
from gptoss_local.talk.tools.mcp.edit import add_server, new_entry, remove_server, without_entry
from gptoss_local.talk.tools.mcp.server import Server
from gptoss_local.talk.tools.mcp.source import McpServers, McpSource

__all__ = [
    "Entry",
    "McpServers",
    "McpSource",
    "Server",
    "add_server",
    "entry_of",
    "mcp_path",
    "new_entry",
    "parse_servers",
    "read_entries",
    "read_text",
    "remove_server",
    "without_entry",
]
