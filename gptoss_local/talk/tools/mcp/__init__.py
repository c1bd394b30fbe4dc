"""MCP servers as sources of tools, by the official SDK, which is imported when needed."""
