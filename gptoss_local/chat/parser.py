"""Harmony tokens -> events, as they stream in.

A state machine over token ids that accepts every sequence: whatever the model emits, tags never
show, no message is lost, and nothing raises. A header that never gets a body is dropped.

openai-harmony's own StreamableParser is not used: when the model forgets `<|end|>` it delivers
`<|start|>` and the next header as content.

Source: the harmony format as openai-harmony renders it; the slips to survive are those seen from
real models (missing `<|end|>`, recipient before or after the channel, no `<|constrain|>`).
"""

import codecs
import re
import secrets
import string
from typing import Any

import msgspec

from gptoss_local.chat.events import ContentDelta, Delta, ReasoningDelta, ToolCall
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
_CHANNEL_NAME = re.compile(r"analysis|commentary|final")
_RECIPIENT = re.compile(rf"to=([^\s{_CHANNEL_MARK}]+)")
_ID_ALPHABET = string.ascii_lowercase + string.digits


class HarmonyParser:
    """One answer, token by token.

    The tokens before the first `<|message|>` are a header; it decides where the body goes:
    to a function (recipient), to reasoning (analysis), else to content.

    Args:
        vocabulary: For the bytes of a token.
        opens_final: The prompt already opened a message of the final channel.
    """

    def __init__(self, vocabulary: Vocabulary, *, opens_final: bool = False) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._header: str | None = None if opens_final else ""
        self._channel = "final"
        self._recipient = ""
        self._arguments = ""
        self._n_calls = 0
        self._has_content = False
        self._needs_break = False
        self.n_reasoning = 0
        """Tokens of analysis so far, without tags and headers."""

    def feed(self, token: int) -> list[Delta]:
        """Take one token and return the events it completes, mostly none or one."""
        if token < FIRST_SPECIAL:
            return self._text(self._decoder.decode(self._token_bytes[token]))
        if token in _BORDERS:
            return self._close()
        if token == CHANNEL:
            events = [] if self._header is not None else self._close()
            self._header = (self._header or "") + _CHANNEL_MARK
            return events
        if token == MESSAGE and self._header is not None:
            self._open(self._header + self._decoder.decode(b"", final=True))
        elif token == CONSTRAIN and self._header is not None:
            self._header += " "
        return []

    def finish(self) -> list[Delta]:
        """Close what is open when the tokens end, cut off or not."""
        return self._close()

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
        self._recipient = recipient[1].removeprefix("functions.") if recipient else ""
        rest = header.replace(recipient[0], " ") if recipient else header
        marked = rest[rest.find(_CHANNEL_MARK) + 1 :]
        channel = _CHANNEL_NAME.search(marked) or _CHANNEL_NAME.search(rest)
        self._channel = channel[0] if channel else "final"
        if self._recipient in ("assistant", "user"):  # a tool result the model made up
            self._recipient, self._channel = "", "analysis"
        self._arguments = ""
        self._needs_break = self._has_content
        self._header = None

    def _close(self) -> list[Delta]:
        """End the current message and expect a header."""
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if self._header is not None:
            events = self._close_header(self._header + tail)
        elif self._recipient:
            events = self._call(self._arguments + tail)
        else:
            events = self._delta(tail)
        self._header, self._recipient = "", ""
        return events

    def _close_header(self, header: str) -> list[Delta]:
        """A header that never met `<|message|>`: plain words without one are the answer."""
        if _CHANNEL_MARK in header or header.strip() in ("", "assistant"):
            return []
        self._channel, self._needs_break = "final", self._has_content
        return self._delta(header)

    def _call(self, arguments: str) -> list[Delta]:
        """A function call, or its words as content when they are not a JSON object."""
        try:  # msgspec, not json: what it reads it can also write
            parsed = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            self._channel, self._needs_break = "final", self._has_content
            return self._delta(arguments)
        call_id = "call_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))
        self._n_calls += 1
        return [ToolCall(self._n_calls - 1, call_id, self._recipient, parsed)]

    def _delta(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._channel == "analysis":
            return [ReasoningDelta(text)]
        if self._needs_break:  # a second content message starts a new paragraph
            text, self._needs_break = "\n\n" + text, False
        self._has_content = True
        return [ContentDelta(text)]


class RawParser:
    """Tokens as text with the tags spelled out, for prompts without a template."""

    n_reasoning = 0  # not told apart here

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

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
