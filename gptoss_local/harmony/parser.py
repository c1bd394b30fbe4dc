"""Harmony tokens -> events, as they stream in, by a state machine that accepts every sequence.

Tags never show, no word is lost, nothing raises. A header without `<|message|>` has its body
inside: an object is a call; other text is the answer, or reasoning if a proper message follows.
"""

import codecs
import secrets
import string
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from gptoss_local.base.events import GAP, CallDelta, ContentDelta, Delta, ReasoningDelta, ToolCall
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony.calls import called, find_calls, fits_so_far
from gptoss_local.harmony.header import Header, HeaderReader
from gptoss_local.harmony.message import Tool
from gptoss_local.harmony.vocabulary import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    START,
    STOP_TOKENS,
    Vocabulary,
)

_N_SHORT = 64  # characters up to which a call is not worth it
_MIN_STEP = 16  # characters between two readings of the text
_STEP_SHARE = 256  # and this part of it, so that a long text is not read too often
_CLOSERS = {"{": "}", "[": "]"}


class GrowingCall:
    """Passes on the beginning of a call's arguments, in the very characters they will have.

    Only the inside of a string is certain: elsewhere the next character may be an error, and its
    repair change earlier text. Text that does not fit the function waits, as it may be an envelope.
    """

    def __init__(self, index: int, call_id: str, tool: Tool) -> None:
        self.id = call_id
        self._index = index
        self._tool = tool
        self._text = ""
        self._open: list[str] = []  # the ends of open objects and lists
        self._in_string = self._is_escaped = False
        self._n_read = 0
        self._sent = ""

    @property
    def has_begun(self) -> bool:
        return bool(self._sent)

    def is_beginning_of(self, arguments: dict[str, Any]) -> bool:
        return msgspec.json.encode(arguments).decode().startswith(self._sent)

    def feed(self, text: str) -> list[CallDelta]:
        """Take a piece of the body and return the arguments' text that it made certain."""
        self._text += text
        for character in text:
            self._scan(character)
        step = max(_MIN_STEP, self._n_read // _STEP_SHARE)
        is_due = len(self._text) >= max(_N_SHORT, self._n_read + step)
        return self.rest() if is_due else []

    def rest(self) -> list[CallDelta]:
        if not self._in_string or self._is_escaped or not self._open:
            return []
        self._n_read = len(self._text)
        closing = '"' + "".join(reversed(self._open))
        try:  # half an escape, or a key, is not valid JSON yet
            arguments = msgspec.json.decode(self._text + closing)
        except (msgspec.DecodeError, RecursionError):
            return []
        if not fits_so_far(arguments, self._tool):
            return []
        certain = msgspec.json.encode(arguments).decode().removesuffix(closing)
        if not certain.startswith(self._sent):  # such as a key that comes twice
            return []
        new, self._sent = certain[len(self._sent) :], certain
        return [CallDelta(self._index, self.id, self._tool.name, new)] if new else []

    def _scan(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._in_string:
            self._is_escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in _CLOSERS:
            self._open.append(_CLOSERS[character])
        elif self._open and character == self._open[-1]:
            self._open.pop()


_BORDERS = frozenset((START, END, *STOP_TOKENS))
_ID_ALPHABET = string.ascii_lowercase + string.digits


class BadCall(NamedTuple):
    """A message that ended with `<|call|>`, but calls nothing; `recipient` may be empty."""

    recipient: str
    problem: Literal["undeclared", "unnamed", "unfit"]


class HarmonyParser:
    """Parses one answer, token by token, into calls, reasoning and content.

    Args:
        vocabulary: For the bytes of a token.
        tools: Declared functions; calls of others become reasoning.
        opens_final: The prompt already opened a message of the final channel.
        streams_calls: Return the arguments of a call as they are written.
        opens_analysis: The prompt ends inside reasoning.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        tools: Sequence[Tool] = (),
        *,
        opens_final: bool = False,
        streams_calls: bool = False,
        opens_analysis: bool = False,
    ) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._tools = tools
        self._names = tuple(tool.name for tool in tools)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        is_open = opens_final or opens_analysis
        self._reader: HeaderReader | None = None if is_open else HeaderReader(self._names)
        self._is_reasoning, self._is_preamble = opens_analysis, False
        self._recipient = ""
        self._arguments = ""
        self._header = Header(channel="final" if opens_final else "analysis")
        self._is_object: bool | None = False  # whether a body without a recipient begins like one
        self._body: list[str] = []  # of a message without a recipient that may be a call
        self._streams_calls = streams_calls
        self._growing: GrowingCall | None = None
        self._held = ""  # text of broken headers: the answer, unless a proper message follows
        self._n_calls = 0
        self._has_reasoning, self._has_content = opens_analysis, False
        self._has_final = False  # one that is whole
        self._begins_message = False
        self.n_reasoning = 0
        """Tokens of analysis so far, without tags and headers."""
        self.broken_call = ""
        """The function whose call broke off after a part of it had been returned."""
        self.bad_call: BadCall | None = None
        """The last message, if it was a call that no client can answer."""
        self.is_over = False
        """After a whole call or answer the model begins to write another speaker's words."""

    def is_content(self, token: int) -> bool:
        """Return whether `token`, fed next, is text of the content."""
        is_open = self._reader is None and not self._recipient and not self._is_reasoning
        if not is_open or token >= FIRST_SPECIAL or self._header.function:
            return False
        is_object = self._is_object
        if is_object is None:
            is_object = self._token_bytes[token].lstrip().startswith(b"{")
        return self._is_final or not is_object

    @property
    def is_reasoning(self) -> bool:
        """Return whether analysis is open, and ends with a whole character."""
        is_open = self._reader is None and not self._recipient and self._is_reasoning
        return is_open and not self._decoder.getstate()[0]

    def feed(self, token: int) -> list[Delta]:
        if self.is_over:
            return []
        if token < FIRST_SPECIAL:
            return self._text(self._decoder.decode(self._token_bytes[token]))
        if token in _BORDERS:
            closed = self._close(is_cut=token not in (END, CALL), is_called=token == CALL)
            self._reader = HeaderReader(self._names, has_role=token == START)
            return closed
        events: list[Delta] = []
        if token == CHANNEL and self._reader is None:
            events = self._close(is_cut=True)
        if self._reader is not None and token in (CHANNEL, CONSTRAIN, MESSAGE):
            self._reader.text(self._decoder.decode(b"", final=True))
            if self._reader.is_of_other and self._is_whole:
                return self._end()
            if token == MESSAGE:
                return self._open(self._reader.read(is_whole=True))
            self._reader.tag("channel" if token == CHANNEL else "constrain")
        return events

    def finish(self) -> list[Delta]:
        """Close what is open when the tokens end; a message that is open then was cut off."""
        events = [] if self.is_over else self._close(is_cut=True)
        held, self._held, self._is_preamble = self._held, "", False
        return events + self._message(held, is_reasoning=False)

    def _end(self) -> list[Delta]:
        """Leave out another speaker's words after a whole call or answer."""
        self.is_over, self._reader, self._recipient = True, None, ""
        return []

    def _text(self, text: str) -> list[Delta]:
        if self._reader is not None:
            self._reader.text(text)
            return []
        if self._recipient:
            self._arguments += text
            return [*self._growing.feed(text)] if self._growing else []
        self.n_reasoning += self._is_reasoning
        return self._body_text(text)

    def _body_text(self, text: str) -> list[Delta]:
        """Pass on text of a message without a recipient; a possible call waits for its end."""
        if self._is_object is None:
            text = "".join([*self._body, text])
            self._body.clear()
            if text.strip():
                self._is_object = text.lstrip().startswith("{")
        if self._is_object is not False or self._header.function:
            self._body.append(text)
            if self._is_object is None or self._header.function or not self._is_final:
                return []
        return self._delta(text, is_reasoning=self._is_reasoning)

    def _open(self, header: Header) -> list[Delta]:
        self._reader = None
        self._is_reasoning = _is_reasoning(header)
        self._recipient = "" if self._is_reasoning and not _is_call(header) else header.recipient
        self._header = header
        self._is_object = None if self._tools else False
        self._is_preamble = header.channel == "commentary" and not self._recipient
        self._arguments, self._begins_message = "", True
        self._body.clear()
        if header.text.lstrip().startswith("{") and self._recipient:
            self._arguments = header.text
        else:
            self._hold(header.text)
        if self._is_reasoning and not self._recipient:
            return []
        tool = called(self._recipient, self._tools) if self._streams_calls else None
        tool = None if tool and tool.is_built_in else tool  # whose body may not be JSON
        self._growing = GrowingCall(self._n_calls, _new_call_id(), tool) if tool else None
        events = self._release()
        return [*events, *self._growing.feed(self._arguments)] if self._growing else events

    def _close(self, *, is_cut: bool, is_called: bool = False) -> list[Delta]:
        self.bad_call = None
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if self._reader is not None:
            self._reader.text(tail)
            events = self._close_header(self._reader, is_cut=is_cut, is_called=is_called)
        elif self._recipient:
            body = self._arguments + tail
            events = self._call(self._recipient, body, is_cut=is_cut, is_called=is_called)
        else:
            self._body.append(tail)
            events = self._close_body(is_cut=is_cut, is_called=is_called)
            self._has_final |= self._is_final and not (is_cut or self._is_reasoning)
        self._reader, self._recipient = HeaderReader(self._names), ""
        return events

    def _close_header(self, reader: HeaderReader, *, is_cut: bool, is_called: bool) -> list[Delta]:
        """Close a header that never met `<|message|>`: the rest of it is the body."""
        header = reader.read(is_whole=False)
        if header.role not in ("", "assistant") and self._is_whole:
            return self._end()
        if _is_call(header) and (reader.has_tags or not is_cut):
            calls = find_calls(
                header.recipient, header.text, self._tools, is_cut=is_cut, objects_only=True
            )
            if calls:
                return [*self._release(), *self._deliver(calls)]
            if is_called:
                return self._bad_call(header.recipient, header.text)
        elif is_called and header.function:
            return self._named_call(header.function, header.text)
        elif header.function:
            header.text = reader.whole
        if _is_reasoning(header):
            return self._message(header.text, is_reasoning=True)
        self._hold(header.text if reader.has_tags else reader.whole)
        return []

    def _close_body(self, *, is_cut: bool, is_called: bool) -> list[Delta]:
        """End a message without a recipient: a call that forgot it, or the text of its channel."""
        body, function = "".join(self._body), self._header.function
        is_of_other = self._header.role not in ("", "assistant")
        was_shown = not function and (
            self._is_object is False or (self._is_final and self._is_object is True)
        )
        may_be_call = bool(body) and (is_called or bool(function))
        fitting = find_calls("", body, self._tools) if may_be_call else []
        if is_called and (fitting or function):
            return self._deliver(fitting) if fitting else self._named_call(function, body)
        if is_called and not (self._has_content or self._n_calls):
            self.bad_call = BadCall("", "unnamed")
        elif function and fitting and not (is_cut or is_of_other):
            tool = called(function, self._tools)
            if tool is not None and tool.name == fitting[0][0]:
                return self._deliver(fitting)
        return self._delta(self._body[-1] if was_shown else body, self._is_reasoning)

    def _named_call(self, name: str, text: str) -> list[Delta]:
        calls = find_calls(name, text, self._tools, objects_only=True)
        return self._deliver(calls) if calls else self._bad_call(name, text)

    def _call(self, recipient: str, text: str, *, is_cut: bool, is_called: bool) -> list[Delta]:
        calls = find_calls(
            recipient, text, self._tools, is_cut=is_cut, is_json=self._header.is_json
        )
        growing, self._growing = self._growing, None
        if growing and growing.has_begun:
            if not calls or not growing.is_beginning_of(calls[0][1]):
                self.broken_call = recipient
                return [*growing.rest()]
            return self._deliver(calls, growing.id)
        if calls:
            return self._deliver(calls)
        if is_called:
            return self._bad_call(recipient, text)
        if called(recipient, self._tools) is not None:
            return self._delta(text, is_reasoning=False)
        self._hold(text)
        return []

    def _bad_call(self, recipient: str, text: str) -> list[Delta]:
        is_declared = called(recipient, self._tools) is not None
        self.bad_call = BadCall(recipient, "unfit" if is_declared else "undeclared")
        events = self._release()
        self._hold(text)
        return events

    def _deliver(
        self, calls: Sequence[tuple[str, dict[str, Any]]], first_id: str = ""
    ) -> list[Delta]:
        ids = [first_id or _new_call_id(), *(_new_call_id() for _ in calls[1:])]
        first, self._n_calls = self._n_calls, self._n_calls + len(calls)
        return [ToolCall(first + i, ids[i], *call) for i, call in enumerate(calls)]

    def _hold(self, text: str) -> None:
        """Keep text of a broken header until it is known what it is."""
        if text.strip():
            self._held += GAP * bool(self._held) + text

    def _release(self) -> list[Delta]:
        """Release what is held: a proper message follows, so it was not one itself."""
        held, self._held = self._held, ""
        begins, self._begins_message = self._begins_message, False
        events = self._message(held, is_reasoning=True)
        self._begins_message = begins
        return events

    def _message(self, text: str, *, is_reasoning: bool) -> list[Delta]:
        self._begins_message = True
        return self._delta(text, is_reasoning=is_reasoning)

    @property
    def _is_final(self) -> bool:
        return self._header.channel in ("final", "")

    @property
    def _is_whole(self) -> bool:
        return self._has_final or self._n_calls > 0

    def _delta(self, text: str, is_reasoning: bool) -> list[Delta]:
        if not text:
            return []
        has_some = self._has_reasoning if is_reasoning else self._has_content
        is_next, self._begins_message = self._begins_message and has_some, False
        text = GAP + text if is_next else text
        if is_reasoning:
            self._has_reasoning = True
            return [ReasoningDelta(text, is_next)]
        self._has_content = True
        return [ContentDelta(text, is_next=is_next, is_preamble=self._is_preamble)]


def _is_call(header: Header) -> bool:
    return header.recipient not in ("", "assistant", "user")


def _is_reasoning(header: Header) -> bool:
    """Return whether no one reads a body: analysis, or words put into another's mouth."""
    if _is_call(header):
        return False
    is_of_other = header.role not in ("", "assistant")
    return header.channel == "analysis" or is_of_other or bool(header.recipient)


def _new_call_id() -> str:
    return "call_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


class RawParser:
    """Tokens as text with the tags spelled out, for prompts without a template."""

    n_reasoning = 0  # not told apart here
    broken_call, bad_call, is_over, is_reasoning = "", None, False, False  # as there are none

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def is_content(self, token: int) -> bool:
        return token not in STOP_TOKENS

    def feed(self, token: int) -> list[Delta]:
        if token in STOP_TOKENS:
            return self.finish()
        if token < FIRST_SPECIAL:
            text = self._decoder.decode(self._vocabulary.token_bytes[token])
        else:
            tag = self._vocabulary.bytes_of(token).decode()
            text = self._decoder.decode(b"", final=True) + tag
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        text = self._decoder.decode(b"", final=True)
        return [ContentDelta(text)] if text else []
