"""Chats as Markdown for people, and as JSON that can be read back."""

import re
from datetime import datetime
from typing import Literal

import msgspec

from gptoss_local.errors import UsageError
from tui.history.plain import plain_text
from tui.history.turn import ChatSummary, Turn

_HEADINGS = {"system": "System", "user": "You", "assistant": "Assistant", "tool": "Tool"}
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class _Export(msgspec.Struct, kw_only=True):
    """The JSON of a chat. Ids are those of the file it came from."""

    format: Literal["gptoss-chat"] = "gptoss-chat"
    version: Literal[1] = 1
    chat: ChatSummary
    turns: list[Turn]


def render_markdown(chat: ChatSummary, turns: list[Turn]) -> str:
    """One branch, the reasoning as quotes, the calls of tools as JSON."""
    when = datetime.fromtimestamp(chat.created_s).astimezone().strftime("%Y-%m-%d %H:%M")
    facts = [chat.model, f"effort {chat.effort}" if chat.effort else "", when]
    parts = [f"# {chat.title or 'Untitled'}", f"*{', '.join(filter(None, facts))}*"]
    for turn in turns:
        parts += [f"## {_HEADINGS[turn.role]}{f' {turn.tool_name}'.rstrip()}"]
        parts += ["\n".join(f"> {line}".rstrip() for line in turn.reasoning.strip().split("\n"))]
        parts += [_with_closed_fence(turn.content.strip("\n"))]
        if turn.tool_calls:
            calls = msgspec.json.format(msgspec.json.encode(turn.tool_calls)).decode()
            parts += [f"```json\n{calls}\n```"]
        parts += [f"*({turn.state})*"] if turn.state != "done" else []
    return plain_text("\n\n".join(part for part in parts if part not in ("", ">"))) + "\n"


def render_json(chat: ChatSummary, turns: list[Turn]) -> str:
    data = msgspec.json.encode(_Export(chat=chat, turns=turns))
    return msgspec.json.format(data).decode() + "\n"


def parse_json(text: str) -> tuple[ChatSummary, list[Turn]]:
    """Read what `render_json` wrote.

    Returns:
        The chat, and its turns, every parent before its children, none of them streaming.

    Raises:
        UsageError: it is something else, or its turns make no tree.
    """
    try:
        found = msgspec.json.decode(text, type=_Export)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UsageError(
            f"This is no exported chat: {error}.", hint="`gptoss log CHAT --json` writes one."
        ) from error
    known: set[int | None] = {None}
    for turn in found.turns:
        if turn.parent_id not in known or turn.id in known:
            raise UsageError(f"This is no exported chat: turn {turn.id} is in no tree.")
        known.add(turn.id)
    if found.chat.leaf_id not in known:
        raise UsageError(f"This is no exported chat: turn {found.chat.leaf_id} is missing.")
    return found.chat, [
        msgspec.structs.replace(turn, state="stopped") if turn.state == "streaming" else turn
        for turn in found.turns
    ]


def _with_closed_fence(text: str) -> str:
    """Close a code block that a stopped answer left open, or it swallows the turns below."""
    fence = ""
    for match in filter(None, map(_FENCE.fullmatch, text.split("\n"))):
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence) and not match[2].strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
