"""Reads the messages that a conversation brings along, in any dialect, as far as possible.

Agents cannot take messages back: only new media are refused, older ones become a note.
"""

import base64
import contextlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gptoss_local.base.errors import RequestTooLargeError, UsageError
from gptoss_local.harmony import GAP, Message, ToolRequest
from gptoss_local.server.body import convert, parse_object

SEAL = "gptoss:"  # begins a field with thinking that is not shown: readable text
_TEXTS = frozenset(("text", "input_text", "output_text", "refusal", "reasoning_text"))
_MEDIA = frozenset(
    (
        *("image", "image_url", "input_image", "audio", "audio_url", "input_audio"),
        *("video", "video_url", "input_video", "file", "input_file", "document"),
    )
)
_APART = frozenset(("document", "search_result", "tool_reference"))
_THOUGHTS = frozenset(("thinking", "reasoning"))
_ELSEWHERE = _THOUGHTS | {"tool_use", "redacted_thinking"}  # parts that are not said


class File(msgspec.Struct):
    file_data: str = ""
    filename: str = ""


class ContentPart(msgspec.Struct, omit_defaults=True):
    """A piece of content, in any API; which fields count depends on `type`."""

    type: str = "text"
    text: str = ""
    refusal: str = ""
    file: File | None = None
    file_data: str = ""
    filename: str = ""
    thinking: str = ""
    reasoning: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    content: Any = None
    tool_use_id: str = ""
    is_error: bool = False
    source: Any = None
    title: str = ""
    context: str = ""
    tool_name: str = ""
    tool_references: list[dict[str, Any]] = []
    tool: Any = None
    url: Any = None
    resource: Any = None
    json: Any = None
    stdout: Any = None
    stderr: Any = None
    return_code: Any = None
    error_code: Any = None


class FunctionCall(msgspec.Struct):
    """A call in a conversation; its arguments are an object or JSON text."""

    name: str = ""
    arguments: Any = None


class CustomToolCall(msgspec.Struct):
    name: str = ""
    input: Any = ""


class SentCall(msgspec.Struct):
    id: str = ""
    function: FunctionCall | None = None
    custom: CustomToolCall | None = None

    def to_request(self) -> ToolRequest:
        if custom := self.custom:
            return ToolRequest(custom.name, {"input": custom.input}, self.id)
        function = self.function or FunctionCall()
        return ToolRequest(function.name, read_arguments(function.arguments), self.id)


class SentMessage(msgspec.Struct):
    """A message of Chat Completions or of Ollama's API."""

    role: str
    content: str | list[ContentPart] = ""
    thinking: Any = ""
    reasoning: Any = ""
    reasoning_content: Any = ""
    refusal: str = ""
    images: list[str] = []
    audio: Any = None
    tool_calls: list[SentCall] = []
    function_call: FunctionCall | None = None  # the older form of tool_calls
    tool_call_id: str = ""
    tool_name: str = ""
    name: str = ""

    def to_message(self, *, is_new: bool = True) -> Message:
        """Return it in our words; UsageError for media if `is_new`."""
        role = self.role.lower()
        is_new = is_new and role not in ("assistant", *RESULTS)
        if self.images and is_new:
            refuse_media("image")
        images = left_out("image") * len(self.images)
        if role == "assistant":
            return self._answer(images)
        content = join_parts(self.content, is_new=is_new) + images
        if role not in RESULTS:
            return message_of(role, content, self.name)
        name = self.tool_name or self.name
        return Message(role="tool", content=content, tool_name=name, tool_call_id=self.tool_call_id)

    def _answer(self, images: str) -> Message:
        """Translate the assistant's message; some programs keep thoughts and calls in its parts."""
        parts = self.content if isinstance(self.content, list) else []
        thoughts = [p.thinking or p.reasoning or p.text for p in parts if p.type in _THOUGHTS]
        named = (self.thinking, self.reasoning, self.reasoning_content)
        calls = [call.to_request() for call in self.tool_calls]
        uses = (part for part in parts if part.type == "tool_use")
        calls += [ToolRequest(p.name, read_arguments(p.input), p.id) for p in uses]
        if self.function_call is not None and not calls:
            calls = [SentCall(function=self.function_call).to_request()]
        said = [part for part in parts if part.type not in _ELSEWHERE]
        content = join_parts(said if parts else self.content, gap="") + images
        if self.audio is not None and not content:
            content = left_out("audio")
        texts = (text for text in named if text and isinstance(text, str))
        return Message(
            role="assistant",
            content=content or self.refusal,
            reasoning=next(texts, "\n".join(filter(None, thoughts))),
            tool_calls=tuple(calls),
        )


def join_parts(content: str | list[ContentPart], *, is_new: bool = False, gap: str = "\n") -> str:
    """Return the text of a message or a tool's result, documents apart.

    Raises UsageError for media if `is_new`.
    """
    if isinstance(content, str):
        return content
    text, is_apart = "", False
    for part in content:
        was_apart, is_apart = is_apart, part.type in _APART
        said = _read_part(part, is_new=is_new)
        if text and said:
            text = text.rstrip("\n") + GAP if was_apart or is_apart else text + gap
        text += said
    return text


def _read_part(part: ContentPart, *, is_new: bool) -> str:
    if (text := part.text or part.refusal) or part.type in _TEXTS:
        return text
    if part.type == "tool_reference":
        return f"[the tool '{part.tool_name}' can be called now]"
    file = part.file or part
    if (text_file := _read_file(file.filename, file.file_data)) is not None:
        return text_file
    if (document := _read_document(part.source)) is not None:
        return GAP.join(filter(None, (part.title, part.context, document)))
    if part.content or part.tool_references:
        place = [n for n in (part.title, part.source, part.url) if n and isinstance(n, str)]
        said = read_output(part.content or part.tool_references)
        return GAP.join(filter(None, ("\n".join(place), said)))
    if part.type not in _MEDIA:  # a result of a tool that others run
        told = msgspec.to_builtins(part)
        return _to_json(told) if told.keys() > {"type"} else left_out(part.type)
    if is_new:
        refuse_media(part.type)
    return left_out(part.type)


def _read_document(source: Any) -> str | None:
    match source:
        case {"type": "text", "data": str(text)}:
            return text
        case {"type": "content", "content": content}:
            return read_output(content)
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return decode_text(data) if kind.startswith("text/") else None
    return None


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


_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]+")  # OpenAI's API takes names without


def message_of(role: str, text: str, name: str = "") -> Message:
    """Return a message that is no answer and no result; one of an unknown role is the user's."""
    if role.lower() in ("system", "developer"):
        return Message(role="system", content=text)
    if role.lower() != "user":
        text = f"[message of the role '{role}']\n{text}"
    return Message(role="user", content=text, name=_NOT_IN_NAMES.sub("_", name)[:64])


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
