"""Turns the result of an MCP call into text, with notes in place of images and the like."""

from typing import TYPE_CHECKING

import msgspec

from gptoss_local.talk.tools.results import ToolResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


def result_of(answer: "CallToolResult") -> ToolResult:
    """Return the text of all content, or else the structured content as JSON."""
    import mcp_types

    parts = [_text_of(block) for block in answer.content]
    has_text = any(isinstance(block, mcp_types.TextContent) for block in answer.content)
    if answer.structured_content is not None and not has_text:
        parts.append(msgspec.json.encode(answer.structured_content).decode())
    return ToolResult("\n".join(parts), is_error=bool(answer.is_error))


def _text_of(block: "ContentBlock") -> str:
    import mcp_types

    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return _note(block.type, block.data, block.mime_type)
        case mcp_types.ResourceLink():
            return str(block.uri)
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return resource.text
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            return _note(str(resource.uri), resource.blob, resource.mime_type or "")
        case _:  # a later revision of the protocol
            return f"[{block.type}]"


def _note(what: str, base64_text: str, kind: str) -> str:
    n_bytes = len(base64_text) * 3 // 4
    size = f"{n_bytes / 1000:.0f} kB" if n_bytes >= 1000 else f"{n_bytes} bytes"
    return f"[{', '.join(filter(None, (what, size, kind)))}]"
