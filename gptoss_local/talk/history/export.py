"""Chats as Markdown for people, as JSON that can be read back, and from others' exports."""

import codecs
import re
import zipfile
import zlib
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple

import msgspec

from gptoss_local.api.answers import AnswerMetrics
from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.base.validation import in_words, lenient
from gptoss_local.talk.history.foreign import ChatGPTChat, WebUIChat, read_chatgpt, read_webui
from gptoss_local.talk.history.plain import one_line
from gptoss_local.talk.history.rows import ChatSummary, Turn

_HEADINGS = {"system": "System", "user": "You", "assistant": "Assistant", "tool": "Tool"}
_MAX_BYTES = 1 << 28
_HINT = (
    "`gptoss chats CHAT --json` and /export NAME.json write one; the exports of ChatGPT and "
    "Open WebUI are read, too."
)
_NOT_ONE = "This is not an exported chat: "
_IN_ZIP = re.compile(r"(?:^|/)conversations(?:-\d+)?\.json$")
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


class Exported(NamedTuple):
    """Chats of a file."""

    chats: list[tuple[ChatSummary, list[Turn]]]
    left_out: Counter[str]  # what a chat here cannot have, and how much of it there is
    unread: list[str]  # why chats could not be read, each with its title

    @property
    def notes(self) -> list[str]:
        """Return sentences on what is not there."""
        parts = [counted(n, what) for what, n in sorted(self.left_out.items()) if n]
        left_out = [f"Not imported: {', '.join(parts)}."] if parts else []
        return left_out + [f"Not a chat that can be read: {why}." for why in self.unread]


def read_export(path: Path) -> Exported:
    try:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        with path.open("rb") as file:
            return exported_in(file, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def exported_in(file: BinaryIO, name: str) -> Exported:
    """Read chats of ours, ChatGPT's or Open WebUI's. Raises UsageError if there is none."""
    found = Exported([], Counter(), [])
    for text in _texts(file, name):
        _take(text, found)
    if not found.chats:
        why = "; ".join(found.unread[:3]) or "it has no chats"
        raise UsageError(f"{_NOT_ONE}{why}.", hint=_HINT)
    return found


def _texts(file: BinaryIO, name: str) -> list[bytes]:
    """Return a file, or what a ZIP has of `conversations.json`."""
    is_zip = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if not is_zip:
        return [_bounded(file, name, _MAX_BYTES)]
    texts: list[bytes] = []
    try:
        with zipfile.ZipFile(file) as packed:
            for each in filter(_IN_ZIP.search, packed.namelist()):
                with packed.open(each) as part:
                    texts.append(_bounded(part, name, _MAX_BYTES - sum(map(len, texts))))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{name} cannot be unpacked: {error}") from error
    if not texts:
        raise UsageError(f"{name} has no conversations.json", hint=_HINT)
    return texts


def _bounded(file: IO[bytes], name: str, max_bytes: int) -> bytes:
    data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise UsageError(f"{name} is too large for exported chats: over {_MAX_BYTES >> 20} MiB")
    return data


def _take(text: bytes, found: Exported) -> None:
    try:
        pieces = _pieces(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{_NOT_ONE}{_why(error)}.", hint=_HINT) from error
    for n, one in enumerate(pieces, 1):
        try:
            found.chats.append(_read(one, found.left_out))
        except (msgspec.DecodeError, RecursionError, UsageError) as error:
            found.unread.append(f"number {n}: {_why(error)}")


def _why(error: Exception) -> str:
    if isinstance(error, msgspec.DecodeError):
        return in_words(error)
    if isinstance(error, UsageError):
        return error.message.removeprefix(_NOT_ONE).rstrip(".")
    return "it is nested too deeply"


def _pieces(text: bytes) -> list[msgspec.Raw]:
    text = lenient(text.removeprefix(codecs.BOM_UTF8))
    if text.lstrip()[:1] != b"[":
        return [msgspec.Raw(text)]
    return msgspec.json.decode(text, type=list[msgspec.Raw])


def _read(one: msgspec.Raw, left_out: Counter[str]) -> tuple[ChatSummary, list[Turn]]:
    names = msgspec.json.decode(one, type=dict[str, msgspec.Raw])
    if "mapping" in names:
        return read_chatgpt(msgspec.json.decode(one, type=ChatGPTChat), left_out)
    if "chat" in names and not names.keys() & {"format", "turns"}:
        return read_webui(msgspec.json.decode(one, type=WebUIChat), left_out)
    return parse_json(bytes(one).decode())


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
        raise UsageError(f"{_NOT_ONE}{in_words(error)}.", hint=_HINT) from error
    known: set[int | None] = {None}
    for turn in found.turns:
        if turn.parent_id not in known or turn.id in known:
            raise UsageError(f"{_NOT_ONE}turn {turn.id} is in no tree.")
        known.add(turn.id)
    if found.chat.leaf_id not in known:
        raise UsageError(f"{_NOT_ONE}turn {found.chat.leaf_id} is missing.")
    found.chat.options.pop("tools", None)  # a file from elsewhere switches none on
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
