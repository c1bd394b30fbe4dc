"""Reads the messages that a conversation brings along, in any dialect, as far as possible.

Agents cannot take messages back: only new media are refused, older ones become a note.
"""

import base64
import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec

from gptoss_local.base.errors import RequestTooLargeError, UsageError
from gptoss_local.harmony import Message
from gptoss_local.server.body import convert, parse_object

SEAL = "gptoss:"  # begins a field with thinking that is not shown: readable text
_TEXTS = frozenset(("text", "input_text", "output_text", "refusal", "reasoning_text"))
_MEDIA = frozenset(
    (
        *("image", "image_url", "input_image", "audio", "audio_url", "input_audio"),
        *("video", "video_url", "input_video", "file", "input_file", "document"),
    )
)


class File(msgspec.Struct):
    file_data: str = ""
    filename: str = ""


class ContentPart(msgspec.Struct):
    """A piece of content, not Anthropic's; which fields count depends on `type`."""

    type: str = "text"
    text: str = ""
    refusal: str = ""
    file: File | None = None
    file_data: str = ""
    filename: str = ""
    thinking: str = ""
    reasoning: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    content: Any = None


class FunctionCall(msgspec.Struct):
    """A call in a conversation; its arguments are an object or JSON text."""

    name: str = ""
    arguments: Any = None


def join_parts(content: str | list[ContentPart], *, is_new: bool = False, gap: str = "\n") -> str:
    """Return the text of a message or a tool's result. Raises UsageError for media if `is_new`."""
    if isinstance(content, str):
        return content
    return gap.join(filter(None, (_read_part(part, is_new=is_new) for part in content)))


def _read_part(part: ContentPart, *, is_new: bool) -> str:
    if text := part.text or part.refusal:
        return text
    if part.type in _TEXTS:
        return ""
    file = part.file or part
    if (text_file := _read_file(file.filename, file.file_data)) is not None:
        return text_file
    if part.content is not None:
        return read_output(part.content)
    if is_new:
        refuse_media(part.type)
    return left_out(part.type)


def _read_file(name: str, url: str) -> str | None:
    head, _, data = url.partition(",")
    if not (head.startswith("data:text/") and head.endswith(";base64")):
        return None
    text = decode_text(data)
    return f"{name}\n\n{text}" if name and text is not None else text


def decode_text(data: str) -> str | None:
    try:
        return base64.b64decode(data).decode("utf-8", "replace")
    except ValueError:
        return None


def read_output(output: Any) -> str:
    if isinstance(output, str):
        return output
    is_part = isinstance(output, dict) and isinstance(output.get("type"), str)
    parts = [output] if is_part else output
    if isinstance(parts, list) and any(isinstance(p, dict) and p.get("type") for p in parts):
        with contextlib.suppress(UsageError):  # their type means something else
            return join_parts(convert(parts, list[ContentPart]))
    return "" if output is None else _to_json(output)


def refuse_media(kind: str) -> None:
    """Refuse a part of a new message, if its kind is known not to be text."""
    if kind in _MEDIA:
        raise UsageError(f"gpt-oss reads text only, and the request has a part of type '{kind}'")


def left_out(kind: str) -> str:
    return f"[{kind} left out: only text can be read here]"


def unseal(sealed: str) -> str:
    return sealed.removeprefix(SEAL) if sealed.startswith(SEAL) else ""


def read_arguments(arguments: Any) -> dict[str, Any] | str:
    """Return the arguments of a call in a history: an object, or the text as sent."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        return _to_json(arguments)
    try:
        return parse_object(arguments, "arguments")
    except RequestTooLargeError:  # a limit of the whole request
        raise
    except UsageError:
        return arguments


RESULTS = ("tool", "function")


def message_of(role: str, text: str) -> Message:
    """Return a message that is no answer and no result; one of an unknown role is the user's."""
    match role.lower():
        case "user":
            return Message(role="user", content=text)
        case "system" | "developer":
            return Message(role="system", content=text)
    return Message(role="user", content=f"[message of the role '{role}']\n{text}")


def last_of_user(roles: Iterable[str]) -> int:
    """Return the index of the newest message that the user typed; earlier ones are history.

    Clients put images of tools into a message of the user after their results.
    """
    named = [role.lower() for role in roles]
    last = max((i for i, role in enumerate(named) if role in ("user", *RESULTS)), default=0)
    first = last
    while first > 0 and named[first] == "user" == named[first - 1]:
        first -= 1
    is_of_tool = bool(named) and (
        named[last] in RESULTS or (first > 0 and named[first - 1] in RESULTS)
    )
    return len(named) if is_of_tool else last


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
