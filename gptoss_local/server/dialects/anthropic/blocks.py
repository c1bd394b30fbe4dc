"""Content blocks of `/v1/messages` -> messages, and the tools that blocks bring or take away.

Source: Anthropic's API reference (content blocks, tool search) and Claude Code's requests.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gptoss_local.errors import UsageError
from gptoss_local.harmony import GAP, Message, Tool, ToolRequest
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.history import (
    decode_text,
    left_out,
    message_of,
    read_arguments,
    read_output,
    refuse_media,
    unseal,
)
from gptoss_local.server.dialects.sent_tools import SentTool, read_tools
from gptoss_local.server.dialects.tool_choice import check_names

_APART = frozenset(("document", "search_result", "tool_reference"))
_ERROR = "[the tool reports an error]\n"


class ContentBlock(msgspec.Struct):
    """Any content block; which fields count depends on `type`."""

    type: str = "text"
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    is_error: bool = False
    content: Any = None
    source: Any = None
    title: str = ""
    context: str = ""
    tool_name: str = ""
    tool_references: list[dict[str, Any]] = []
    tool: Any = None


class AnthropicMessage(msgspec.Struct):
    role: str
    content: str | list[ContentBlock] = ""

    @property
    def kind(self) -> str:
        """Return the role, or `tool` for a message with results of tools."""
        return "tool" if any(b.type == "tool_result" for b in self.blocks) else self.role

    @property
    def blocks(self) -> list[ContentBlock]:
        return [ContentBlock(text=self.content)] if isinstance(self.content, str) else self.content


def to_messages(wire: AnthropicMessage, *, is_new: bool) -> Iterator[Message]:
    """Make messages of one, results of tools first. Raises UsageError for a new non-text block."""
    blocks = wire.blocks
    match wire.role.lower():
        case "assistant":
            yield from _assistant(blocks)
        case "system" | "developer":
            said = [b for b in blocks if b.type not in ("tool_addition", "tool_removal")]
            if said or not blocks:
                yield Message(role="system", content=read_blocks(said, is_new=is_new))
        case role:
            results = [_result(b) for b in blocks if b.type == "tool_result"]
            yield from results
            said = [b for b in blocks if b.type != "tool_result"]
            if said or not results:
                text = read_blocks(said, is_new=is_new)
                is_user = role == "user"
                yield Message(role="user", content=text) if is_user else message_of(role, text)


def _assistant(blocks: Iterable[ContentBlock]) -> Iterator[Message]:
    has_said = False
    for kind, group in itertools.groupby(blocks, _kind):
        if kind == "said":
            text = read_blocks(list(group))
            if text := text.removeprefix(GAP) if has_said else text:
                yield Message(role="assistant", content=text)
            has_said = True
            continue
        for block in group:
            match kind:
                case "thinking" if thought := _thought(block):
                    yield Message(role="assistant", reasoning=thought)
                case "call":
                    call = ToolRequest(block.name, read_arguments(block.input), block.id)
                    yield Message(role="assistant", tool_calls=(call,))
                case "result":
                    yield _result(block)


def _kind(block: ContentBlock) -> str:
    if block.type.endswith("tool_use"):
        return "call"
    if block.type.endswith("tool_result"):
        return "result"
    return "thinking" if block.type in ("thinking", "redacted_thinking") else "said"


def _thought(block: ContentBlock) -> str:
    """Return the text of a thinking block, from its signature where it was not to be shown."""
    return block.thinking or unseal(block.signature)


def _result(block: ContentBlock) -> Message:
    content = _read_content(block.content)
    content = _ERROR + content if block.is_error else content
    return Message(role="tool", content=content, tool_call_id=block.tool_use_id)


def read_blocks(blocks: Sequence[ContentBlock], *, is_new: bool = False) -> str:
    """Return the text of blocks, documents apart. Raises UsageError for new non-text parts."""
    text, is_apart = "", False
    for block in blocks:
        was_apart, is_apart = is_apart, block.type in _APART
        if text and (was_apart or is_apart):
            text = text.rstrip("\n") + GAP
        text += _read(block, is_new=is_new)
    return text


def _read(block: ContentBlock, *, is_new: bool) -> str:
    match block.type:
        case "text":
            return block.text
        case "document" if (document := _document(block.source)) is not None:
            return GAP.join(filter(None, (block.title, block.context, document)))
        case "search_result":
            head = f"{block.title}\n{block.source}".strip()
            return f"{head}{GAP}{_read_content(block.content)}"
        case "tool_reference":
            return f"[the tool '{block.tool_name}' can be called now]"
        case "tool_search_tool_search_result":
            return _read_content(block.tool_references)
    if text := block.text or _read_content(block.content):
        return text
    if is_new:
        refuse_media(block.type)
    return left_out(block.type)


def _read_content(content: Any) -> str:
    is_block = isinstance(content, dict) and isinstance(content.get("type"), str)
    blocks = _to_blocks([content] if is_block else content)
    return read_output(content) if blocks is None else read_blocks(blocks)


def _to_blocks(content: Any) -> list[ContentBlock] | None:
    try:
        return convert(content, list[ContentBlock]) if isinstance(content, list) else None
    except UsageError:
        return None


def _document(source: Any) -> str | None:
    match source:
        case {"type": "text", "data": str(text)}:
            return text
        case {"type": "content", "content": content}:
            return _read_content(content)
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            if kind.startswith("text/"):
                return decode_text(data)
    return None


def offered_tools(
    declared: Iterable[SentTool], messages: Iterable[AnthropicMessage], chosen: str
) -> list[Tool]:
    """Return the tools to offer, as changed in `messages`; one may be `chosen`.

    Deferred tools count once found, or where Anthropic's own search would find them.
    """
    declared = list(declared)
    check_names(read_tools(declared))
    tools = {tool.name: tool for tool in declared}
    finds_none = any(tool.type.startswith("tool_search_tool_") for tool in declared)
    is_there = {t.name: finds_none or not t.defer_loading or t.name == chosen for t in declared}
    for block in _all_blocks(messages):
        match block.tool:
            case {"type": "tool_definition", "definition": dict(definition)}:
                tool = convert(definition, SentTool)
                name = tool.name
                tools[name] = tool
            case {"name": str(name)}:
                pass
            case _:
                name = block.tool_name
        if block.type in ("tool_reference", "tool_addition", "tool_removal"):
            is_there[name] = block.type != "tool_removal"
    return read_tools(tool for tool in tools.values() if is_there.get(tool.name))


def _all_blocks(messages: Iterable[AnthropicMessage]) -> Iterator[ContentBlock]:
    """Yield all blocks, and those inside the results of tools."""
    for message in messages:
        if not isinstance(message.content, str):
            for block in message.content:
                yield block
                yield from _inner(block)


def _inner(block: ContentBlock) -> Iterator[ContentBlock]:
    if not block.type.endswith("tool_result"):
        return
    content = block.content
    if isinstance(content, dict):  # of Anthropic's own search
        content = content.get("tool_references")
    yield from _to_blocks(content) or ()
