"""An MCP server by the SDK's own API: over stdio, or with `http PORT` or `sse PORT`."""

import asyncio
import base64
import os
import subprocess
import sys
from typing import Any

import mcp_types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

server = MCPServer("good", version="1.5")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="get weather/today")
def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


@server.tool(structured_output=False)
def media() -> list[mcp_types.ContentBlock]:
    """Return all kinds of content."""
    data = base64.b64encode(b"x" * 34_000).decode()
    text = mcp_types.TextResourceContents(uri="file:///a.txt", text="in a file")
    blob = mcp_types.BlobResourceContents(uri="file:///b", blob=data, mime_type="font/ttf")
    return [
        mcp_types.TextContent(type="text", text="first"),
        mcp_types.ImageContent(type="image", data=data, mime_type="image/png"),
        mcp_types.AudioContent(type="audio", data="QUJD", mime_type="audio/wav"),
        mcp_types.EmbeddedResource(type="resource", resource=text),
        mcp_types.EmbeddedResource(type="resource", resource=blob),
        mcp_types.ResourceLink(type="resource_link", name="c", uri="https://example.org/c"),
    ]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such luck")


@server.tool()
def environment() -> dict[str, str]:
    """Return the variables of the server."""
    return dict(os.environ)


@server.tool()
def folder() -> str:
    """Return the folder of the server."""
    return os.getcwd()


class Answer(BaseModel):
    is_sure: bool


@server.tool()
async def ask(context: Context) -> str:
    """Ask the user."""
    return str(await context.elicit("Are you sure?", Answer))


@server.tool()
async def slow(file: str) -> str:
    """Wait for ever; write the reason for the end."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        with open(file, "w") as written:
            written.write("cancelled")
        raise
    return ""


@server.tool()
def die() -> str:
    """End the server during a call."""
    os._exit(3)


@server.tool()
def spawn() -> str:
    """Start a process that outlives the server, in a session of its own."""
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    return f"{os.getpid()} {child.pid}"


@server.tool()
async def grow(context: Context) -> str:
    """Offer one more tool."""
    server.add_tool(lambda: "new", name="grown", description="It was not there before.")
    await context.notify_tools_changed()
    return "grown"


def serve(kind: str, port: int) -> None:
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    key = os.environ.get("MY_KEY", "")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and key:
            headers = dict(scope["headers"])
            if headers.get(b"authorization") != f"Bearer {key}".encode():
                await PlainTextResponse("no", 401)(scope, receive, send)
                return
        await app(scope, receive, send)

    uvicorn.run(guarded, port=port, log_level="warning")


if __name__ == "__main__":
    print("starting with", os.environ.get("MY_TOKEN"), file=sys.stderr, flush=True)
    if len(sys.argv) == 3:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        server.run("stdio")
