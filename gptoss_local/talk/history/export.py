"""Chats as Markdown for people, and as JSON that can be read back."""

import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec

from gptoss_local.api.answers import AnswerMetrics
from gptoss_local.base.errors import UsageError
from gptoss_local.base.validation import in_words
from gptoss_local.talk.history.plain import one_line
from gptoss_local.talk.history.rows import ChatSummary, Turn

_HEADINGS = {"system": "System", "user": "You", "assistant": "Assistant", "tool": "Tool"}
_MAX_BYTES = 1 << 28
_HINT = "`gptoss chats CHAT --json` and /export NAME.json write one."
_NEWLINE = re.compile(r"\r\n?|\n")  # as in CommonMark
_MAX_LEVEL = 6  # of headings


class _Export(msgspec.Struct, kw_only=True):
    format: Literal["gptoss-chat"] = "gptoss-chat"
    version: Literal[1] = 1
    chat: ChatSummary
    turns: list[Turn]


class _Function(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | str = {}


class _Call(msgspec.Struct):
    function: _Function


class _Stats(AnswerMetrics, msgspec.Struct):
    ttft_s: float | None = None
    reasoning_s: float = 0
    n_reasoning_frames: int = 0
    seconds: float = 0
    is_error: bool = False
    error: str = ""
    latencies_ms: list[float] = []
    tokens: list[int] = []
    folds: list[tuple[int, int, str]] = []


class _Detail(msgspec.Struct):
    tool_calls: list[_Call] = []
    stats: _Stats | None = None


class _Details(msgspec.Struct):
    """Calls and figures that the chat can show."""

    turns: list[_Detail]


def read_export(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is too large for an exported chat")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not an exported chat: it is not text", hint=_HINT) from error


def render_markdown(chat: ChatSummary, turns: list[Turn]) -> str:
    when = datetime.fromtimestamp(chat.created_s).astimezone().strftime("%Y-%m-%d %H:%M")
    facts = [chat.model, f"effort {chat.effort}" if chat.effort else "", when]
    parts = [f"# {chat.title or 'Untitled'}", f"*{one_line(', '.join(filter(None, facts)))}*"]
    for turn in turns:
        parts += [f"## {one_line(f'{_HEADINGS[turn.role]} {turn.tool_name}')}"]
        quoted = (f"> {line}".rstrip() for line in _NEWLINE.split(turn.reasoning.strip()))
        parts += [_below_headings("\n".join(quoted)), _below_headings(turn.content.strip("\n"))]
        if turn.tool_calls:
            calls = msgspec.json.format(msgspec.json.encode(turn.tool_calls)).decode()
            parts += [f"```json\n{calls}\n```"]
        parts += [f"*({turn.state})*"] if turn.state != "done" else []
    return "\n\n".join(part for part in parts if part not in ("", ">")) + "\n"


def render_json(chat: ChatSummary, turns: list[Turn]) -> str:
    data = msgspec.json.encode(_Export(chat=chat, turns=turns))
    return msgspec.json.format(data).decode() + "\n"


def parse_json(text: str) -> tuple[ChatSummary, list[Turn]]:
    """Read the JSON of `render_json`: turns have parents before children, and none streams."""
    try:
        found = msgspec.json.decode(text, type=_Export)
        msgspec.json.decode(text, type=_Details)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        why = in_words(error) if isinstance(error, msgspec.DecodeError) else error
        raise UsageError(f"This is not an exported chat: {why}.", hint=_HINT) from error
    known: set[int | None] = {None}
    for turn in found.turns:
        if turn.parent_id not in known or turn.id in known:
            raise UsageError(f"This is not an exported chat: turn {turn.id} is in no tree.")
        known.add(turn.id)
    if found.chat.leaf_id not in known:
        raise UsageError(f"This is not an exported chat: turn {found.chat.leaf_id} is missing.")
    return found.chat, [
        msgspec.structs.replace(turn, state="stopped") if turn.state == "streaming" else turn
        for turn in found.turns
    ]


def _below_headings(text: str) -> str:
    """Lower a text's headings and close its last block, or it would swallow the next turns."""
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    markdown = MarkdownIt("commonmark").disable("inline")
    lines = _NEWLINE.split(text)
    blocks = markdown.parse("\n".join(lines))
    for block, title in reversed(list(pairwise(blocks))):
        if block.type == "heading_open" and block.map:
            start, end = block.map
            marks = "#" * min(int(block.tag[1]) + 2, _MAX_LEVEL)
            if block.markup.startswith("#"):
                lines[start] = lines[start].replace(block.markup, marks, 1)
            else:  # one with a line below it
                words = [line.rstrip() for line in title.content.split("\n")]
                before = lines[start].rstrip().removesuffix(words[0])
                lines[start:end] = [f"{before}{marks} {' '.join(words)}"]
    text = "\n".join(lines)
    ends = ("", blocks[-1].markup if blocks else "", "-->", "</pre>", "?>", "]]>")
    closed = (f"{text}\n{end}".rstrip("\n") for end in ends)
    return next(each for each in closed if markdown.parse(f"{each}\n\n#")[-1].tag == "h1")
