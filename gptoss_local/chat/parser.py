"""Harmony tokens -> events, as they stream in.

A state machine over token ids that accepts every sequence: whatever the model emits, tags never
show, no message is lost, and nothing raises. A header without a body is dropped.

openai-harmony's own StreamableParser is not used: when the model forgets `<|end|>` it delivers
`<|start|>` and the next header as content.

Source: the harmony format as openai-harmony renders it; the slips to survive are those seen from
real models (missing `<|end|>` or `<|message|>`, recipient before or after the channel, no
`<|constrain|>`).
"""

import codecs
import re
import secrets
import string
from collections.abc import Sequence

from gptoss_local.chat.calls import find_calls
from gptoss_local.chat.events import ContentDelta, Delta, ReasoningDelta, ToolCall
from gptoss_local.chat.message import Tool
from gptoss_local.chat.vocabulary import (
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    START,
    STOP_TOKENS,
    Vocabulary,
)
from gptoss_local.o200k import FIRST_SPECIAL

_BORDERS = frozenset((START, END, *STOP_TOKENS))
_CHANNEL_MARK = "\0"  # stands for <|channel|> in a header's text
_TYPE_MARK = "\1"  # stands for <|constrain|>
_CHANNEL_NAME = re.compile(r"analysis|commentary|final")
_RECIPIENT = re.compile(rf"to=([^\s{_CHANNEL_MARK}{_TYPE_MARK}<]+)")
_ROLE = re.compile(r"\s*(?:assistant|(?P<other>user|system|developer|tool|functions\.[\w.-]+))\b")
_HEADER_END = re.compile(rf"(?:{_TYPE_MARK}\s*\w+|\s+(?:json|code)\b)?[ \t]*:?")
_ID_ALPHABET = string.ascii_lowercase + string.digits


class HarmonyParser:
    """One answer, token by token.

    The tokens before the first `<|message|>` are a header; it decides where the body goes:
    to a function (recipient), to reasoning (analysis, and what others are made to say), else to
    content.

    Args:
        vocabulary: For the bytes of a token.
        tools: The functions that are declared. A call of another one is content.
        opens_final: The prompt already opened a message of the final channel.
    """

    def __init__(
        self, vocabulary: Vocabulary, tools: Sequence[Tool] = (), *, opens_final: bool = False
    ) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._tools = tools
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._header: str | None = None if opens_final else ""
        self._channel = "final"
        self._recipient = ""
        self._arguments = ""
        self._n_calls = 0
        self._has_reasoning = self._has_content = False
        self._begins_message = False
        self._has_role = False  # the header begins with one; the prompt holds that of the first
        self.n_reasoning = 0
        """Tokens of analysis so far, without tags and headers."""

    def is_content(self, token: int) -> bool:
        """Whether `token`, fed next, is text of the content."""
        is_open = self._header is None and not self._recipient and self._channel != "analysis"
        return is_open and token < FIRST_SPECIAL

    def feed(self, token: int) -> list[Delta]:
        """Take one token and return the events it completes, mostly none or one."""
        if token < FIRST_SPECIAL:
            return self._text(self._decoder.decode(self._token_bytes[token]))
        if token in _BORDERS:
            events = self._close()
            self._has_role = token == START
            return events
        if token == CHANNEL:
            events = [] if self._header is not None else self._close()
            self._header = (self._header or "") + _CHANNEL_MARK
            return events
        if token == MESSAGE and self._header is not None:
            self._open(self._header + self._decoder.decode(b"", final=True))
        elif token == CONSTRAIN and self._header is not None:
            self._header += _TYPE_MARK
        return []

    def finish(self) -> list[Delta]:
        """Close what is open when the tokens end; a message that is open then was cut off."""
        return self._close(is_cut=True)

    def _text(self, text: str) -> list[Delta]:
        if self._header is not None:
            self._header += text
            return []
        if self._recipient:
            self._arguments += text
            return []
        self.n_reasoning += self._channel == "analysis"
        return self._delta(text)

    def _open(self, header: str) -> None:
        """Begin a body by its header, e.g. `assistant<|channel|>commentary to=functions.f json`."""
        recipient = _RECIPIENT.search(header)
        self._recipient = self._full_name(header, recipient) if recipient else ""
        rest = header.replace(recipient[0], " ") if recipient else header
        marked = rest[rest.find(_CHANNEL_MARK) + 1 :]
        channel = _CHANNEL_NAME.search(marked) or _CHANNEL_NAME.search(rest)
        self._channel = channel[0] if channel else "final"
        role = _ROLE.match(header) if self._has_role else None
        is_of_other = role is not None and role["other"] and not self._recipient
        if is_of_other or self._recipient in ("assistant", "user"):  # made up by the model
            self._recipient, self._channel = "", "analysis"
        self._arguments = ""
        self._begins_message = True
        self._header = None

    def _full_name(self, header: str, recipient: re.Match[str]) -> str:
        """The recipient, with the rest of its name if that has a space in it."""
        written = header[recipient.start(1) :].removeprefix("functions.")
        names = [t.name for t in self._tools if " " in t.name and written.startswith(t.name)]
        return max(names, key=len, default=recipient[1])

    def _close(self, *, is_cut: bool = False) -> list[Delta]:
        """End the current message and expect a header."""
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if self._header is not None:
            events = self._close_header(self._header + tail, is_cut=is_cut)
        elif self._recipient:
            events = self._call(self._arguments + tail, is_cut=is_cut)
        else:
            events = self._delta(tail)
        self._header, self._recipient = "", ""
        return events

    def _close_header(self, header: str, *, is_cut: bool) -> list[Delta]:
        """A header that never met `<|message|>`: what follows its own words is the body."""
        role = _ROLE.match(header) if self._has_role else None
        end = max(m.end() if m else 0 for m in (role, *_RECIPIENT.finditer(header)))
        if (mark := header.rfind(_CHANNEL_MARK)) >= 0:
            channel = _CHANNEL_NAME.match(header, mark + 1)
            end = max(end, channel.end() if channel else mark + 1)
        end = max(end, header.rfind(_TYPE_MARK))
        if end and (found := _HEADER_END.match(header, end)):
            end = found.end()
        body = header[end:].replace(_CHANNEL_MARK, "").replace(_TYPE_MARK, "")
        if body.strip() in ("", "assistant"):
            return []
        self._open(header[:end])
        if self._recipient:
            return self._call(body, is_cut=is_cut)
        return self._delta(body.lstrip() if end else body)

    def _call(self, text: str, *, is_cut: bool) -> list[Delta]:
        """A function call or several, or its words as content when it is none."""
        calls = find_calls(self._recipient, text, self._tools, is_cut=is_cut)
        if not calls:
            self._channel = "final"
            name = self._recipient.removeprefix("functions.")
            is_known = name in (tool.name for tool in self._tools)
            return self._delta(text if is_known else f"{name}({text})")
        self._n_calls += len(calls)
        first = self._n_calls - len(calls)
        return [ToolCall(first + i, _new_call_id(), *call) for i, call in enumerate(calls)]

    def _delta(self, text: str) -> list[Delta]:
        """Text of the open message; a second one of a kind starts a new paragraph."""
        if not text:
            return []
        is_reasoning = self._channel == "analysis"
        if self._begins_message and (self._has_reasoning if is_reasoning else self._has_content):
            text = "\n\n" + text
        self._begins_message = False
        if is_reasoning:
            self._has_reasoning = True
            return [ReasoningDelta(text)]
        self._has_content = True
        return [ContentDelta(text)]


def _new_call_id() -> str:
    return "call_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


class RawParser:
    """Tokens as text with the tags spelled out, for prompts without a template."""

    n_reasoning = 0  # not told apart here

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def is_content(self, token: int) -> bool:
        """Whether `token` is text: all but the last one."""
        return token not in STOP_TOKENS

    def feed(self, token: int) -> list[Delta]:
        if token in STOP_TOKENS:
            return self.finish()
        if token < FIRST_SPECIAL:
            text = self._decoder.decode(self._vocabulary.token_bytes[token])
        else:
            text = self._decoder.decode(b"", final=True) + self._vocabulary.encoding.decode([token])
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        text = self._decoder.decode(b"", final=True)
        return [ContentDelta(text)] if text else []
