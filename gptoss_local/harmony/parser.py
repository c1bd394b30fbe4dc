"""Harmony tokens -> events, as they stream in, by a state machine that accepts every sequence.

Tags never show and nothing raises. How a message ends decides what it is: see `_close`.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from gptoss_local.base.events import GAP, ContentDelta, Delta, ReasoningDelta, TokenDelta, ToolCall
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony.calls import Call, called, find_calls, first_keys
from gptoss_local.harmony.growing_call import GrowingCall, new_call_id
from gptoss_local.harmony.header import Header, HeaderReader, is_rest_of_header
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

_BORDERS = frozenset((START, END, *STOP_TOKENS))
_JSON_IN_PROSE = re.compile(r"\{|```|\[\s*(?:\{|$)")
_FIRST_KEY = re.compile(r'[\s{\[]*(?:"([^"]*)("?))?')


class BadCall(NamedTuple):
    """A message that was to be a call, but calls nothing; `recipient` may be empty."""

    recipient: str
    problem: Literal["undeclared", "unnamed", "unfit"]


class HarmonyParser:
    """Parses one answer, token by token, into calls, reasoning and content.

    Args:
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
        self._token_bytes, self._own = vocabulary.token_bytes, vocabulary.own
        self._tools = tools
        self._names = tuple(tool.name for tool in tools)
        self._first_keys = first_keys(tools)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        is_open = opens_final or opens_analysis
        self._reader: HeaderReader | None = None if is_open else HeaderReader(self._names)
        self._header = Header(channel="final" if opens_final else "analysis")
        self._recipient = ""
        self._is_reasoning, self._is_preamble = opens_analysis, False
        self._passed: list[str] = []  # of the open body
        self._waiting = ""  # its rest, which may be a call; an open call's arguments
        self._is_held = False  # until the end of the message
        self._streams_calls = streams_calls
        self._growing: GrowingCall | None = None
        self._held = ""  # text of broken headers: the answer, unless a proper message follows
        self._n_calls = 0
        self._has_reasoning, self._has_content = opens_analysis, False
        self._has_text = False  # content that is not blank
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
        self.last_thought = ""
        """The last message, if it was reasoning or a call of an unknown function."""

    def is_content(self, token: int) -> bool:
        """Return whether `token`, fed next, is of the content: text, or a fine-tune's own tag."""
        is_open = self._reader is None and not self._recipient and not self._is_reasoning
        if not is_open or self._header.function:
            return False
        text = self._token_bytes[token] if token < FIRST_SPECIAL else self._own.get(token)
        if text is None:
            return False
        may_be_call = self._is_held or (self._tools and b"{" in text)
        return not (self._is_preamble and may_be_call)

    @property
    def is_reasoning(self) -> bool:
        """Return whether analysis is open, and ends with a whole character."""
        is_open = self._reader is None and not self._recipient and self._is_reasoning
        return is_open and not self._decoder.getstate()[0]

    @property
    def is_call(self) -> bool:
        """Return whether the arguments of a call are being written."""
        return self._reader is None and bool(self._recipient)

    @property
    def has_answer(self) -> bool:
        """Return whether there is a call, or content that is not blank."""
        return self._has_text or self._n_calls > 0 or bool(self._held)

    def feed(self, token: int) -> list[Delta]:
        if self.is_over:
            return []
        if token < FIRST_SPECIAL:
            return self._text(self._decoder.decode(self._token_bytes[token]))
        if token in self._own:
            return self._text(self._decoder.decode(text)) if (text := self._own[token]) else []
        if token in _BORDERS:
            closed = self._close(token)
            self._reader = HeaderReader(self._names, has_role=token == START)
            return closed
        events: list[Delta] = []
        if token == CHANNEL and self._reader is None:
            events = self._close(token)
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
        events = [] if self.is_over else self._close(None)
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
        self._waiting += text
        if self._recipient:
            pieces = self._growing.feed(text) if self._growing else []
            return [*pieces] if self._streams_calls else []  # in either case equal in the end
        self.n_reasoning += self._is_reasoning
        if self._is_held:
            return []
        begin = self._call_begins() if self._tools else None
        n = len(self._waiting) if begin is None else begin
        certain, self._waiting = self._waiting[:n], self._waiting[n:]
        self._passed.append(certain)
        return self._delta(certain, is_reasoning=self._is_reasoning)

    def _call_begins(self) -> int | None:
        """Return where a call may begin in what waits; None if it is text."""
        text, has_passed = self._waiting, any(self._passed)
        start = text.lstrip()[:1]
        if not (start or has_passed):
            return 0
        begin: int | None = None
        if self._header.function:
            begin = 0
        elif self._is_preamble:
            json = _JSON_IN_PROSE.search(text)
            begin = json and json.start()
            if not has_passed and (start == "[" or self._is_opening(text[:begin])):
                return 0
        elif not has_passed and start in ("{", "["):
            # An answer is often JSON: only that with a function's words waits.
            key = None if self._is_reasoning else _FIRST_KEY.match(text)
            if key and not key[2] and key.end() == len(text):
                return 0
            is_functions = key[1] in self._first_keys if key else start == "{"
            begin = 0 if is_functions else None
        self._is_held = begin is not None
        return begin

    def _is_opening(self, text: str) -> bool:
        """Return whether this is a header after `<|message|>`, or may become a function's name."""
        word = text.strip(" \n(:").removeprefix("functions.")
        names = (*self._names, "functions.")
        return is_rest_of_header(text) or any(name.startswith(word) for name in names)

    def _open(self, header: Header) -> list[Delta]:
        self._reader, self._header = None, header
        has_body = header.text.lstrip().startswith("{")
        if header.channel == "final":
            header.function = ""
            header.recipient = header.recipient * (not has_body)  # it was of another message
        self._recipient = self._called_by(header)
        self._is_reasoning = not self._recipient and _is_reasoning(header)
        self._is_preamble = header.channel == "commentary" and not self._recipient
        self._passed, self._waiting, self._is_held = [], "", False
        self._begins_message, self.bad_call = True, None
        if has_body and self._recipient:
            self._waiting = header.text
        elif self._is_reasoning:
            events = [] if is_rest_of_header(header.text) else self._thought(header.text)
            self._begins_message = True
            return events
        else:
            self._hold(header.text)
        tool = called(self._recipient, self._tools)
        self._growing = GrowingCall(self._n_calls, tool) if tool else None
        events = self._release()
        pieces = self._growing.feed(self._waiting) if self._growing else []
        return [*events, *pieces] if self._streams_calls else events

    def _called_by(self, header: Header) -> str:
        """Return the recipient of a call; the final channel's text may go to anybody."""
        is_text = header.channel == "final" and called(header.recipient, self._tools) is None
        return "" if is_text or header.recipient in ("assistant", "user") else header.recipient

    def _close(self, end: int | None) -> list[Delta]:
        """End a message by a tag, or where the tokens end (None), and decide what it was.

        A call that is whole, or can be repaired in one way, is called. One that the tokens' end
        cuts is returned as far as it is certain; any other is `bad_call`, its text reasoning.
        Only the final channel, a preamble, and text without a header are content.
        """
        tail = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if self._reader is not None:
            self._reader.text(tail)
            events = self._close_header(self._reader, end)
        else:
            self._waiting += tail
            events = self._close_call(end) if self._recipient else self._close_body(end)
        self._reader, self._recipient, self._growing = HeaderReader(self._names), "", None
        return events

    def _close_header(self, reader: HeaderReader, end: int | None) -> list[Delta]:
        """Close a header that never met `<|message|>`: the rest of it is the body."""
        header = reader.read(is_whole=False, is_called=end == CALL)
        if header.role not in ("", "assistant") and self._is_whole:
            return self._end()
        if not reader.whole.strip() and not (end == CALL and reader.has_tags):
            return []
        self.bad_call = None
        is_named = self._called_by(header) and (reader.has_tags or end in (END, CALL, None))
        name = header.recipient if is_named else header.function
        if is_named or end == CALL:
            is_cut = end not in (END, CALL)
            calls = find_calls(name, header.text, self._tools, is_cut=is_cut, objects_only=True)
            if calls:
                return [*self._release(), *self._deliver(calls)]
            if is_named and end is None:
                return self._cut(name, header.text) if header.text.strip() else []
            text = header.text if reader.has_tags or name else reader.whole
            return self._bad_call(name, text) if end in STOP_TOKENS else self._thought(text)
        text = reader.whole if header.function or not reader.has_tags else header.text
        may_be_rest = end is None or (reader.has_tags and header.channel != "final")
        if may_be_rest and is_rest_of_header(text):
            return []
        if reader.has_tags and _is_reasoning(header):
            return self._thought(text)
        self._hold(text)
        return []

    def _close_body(self, end: int | None) -> list[Delta]:
        """End a message without a recipient: a call that forgot it, or the text of its channel."""
        name, rest = self._header.function, self._waiting
        body = "".join(self._passed) + rest
        if self._is_reasoning:
            self.last_thought = body
        is_of_other = self._header.role not in ("", "assistant")
        if end == CALL:
            calls = find_calls("", body, self._tools)
            if not calls and name:
                calls = find_calls(name, body, self._tools, objects_only=True)
            if calls:
                return self._deliver(calls)
            if name or not (self._is_final or self._has_final or self._n_calls):
                return self._bad_call(name, rest)
        elif name and end == END and not is_of_other and body.lstrip().startswith("{"):
            calls = find_calls("", body, self._tools)
            tool = called(name, self._tools)
            if calls and tool is not None and tool.name == calls[0][0]:
                return self._deliver(calls)
        is_cut = end is None and self._is_preamble and not any(self._passed)
        if name or (is_cut and (self._is_held or self._is_opening(rest))):
            return self._thought(rest)
        events = self._delta(rest, is_reasoning=self._is_reasoning)
        self._has_final |= self._is_final and end in (END, CALL) and bool(body.strip())
        return events

    def _close_call(self, end: int | None) -> list[Delta]:
        name, text, growing = self._recipient, self._waiting, self._growing
        is_final = self._header.channel == "final"
        is_cut, is_json = end not in (END, CALL), self._header.is_json or is_final
        calls = find_calls(name, text, self._tools, is_cut=is_cut, is_json=is_json)
        if end is None and not calls:
            return self._cut(name, text)
        is_known = growing is not None and bool(growing.certain) and self._streams_calls
        if growing and is_known and not (calls and growing.is_beginning_of(calls[0][1])):
            self.broken_call = name
            return []
        if calls:
            return self._deliver(calls, growing.id if growing else "")
        if is_final and end != CALL and not text.lstrip().startswith("{"):
            return self._delta(text, is_reasoning=False)
        return self._bad_call(name, text)

    def _cut(self, name: str, text: str) -> list[Delta]:
        """Return the rest of a call that was cut; no call of an unknown function."""
        tool = called(name, self._tools)
        if tool is None:
            return self._thought(text)
        growing, is_known = self._growing, self._streams_calls
        if growing is None:  # all in the header
            growing, is_known = GrowingCall(self._n_calls, tool), False
            growing.feed(text)
        self._n_calls += 1
        return [*self._release(), *growing.cut(is_known=is_known)]

    def _bad_call(self, name: str, text: str) -> list[Delta]:
        is_declared = called(name, self._tools) is not None
        unknown: Literal["undeclared", "unnamed"] = "undeclared" if name else "unnamed"
        self.bad_call = BadCall(name, "unfit" if is_declared else unknown)
        events = [*self._release(), *self._thought(text)]
        if is_declared:
            self.last_thought = ""
        return events

    def _deliver(self, calls: Sequence[Call], first_id: str = "") -> list[Delta]:
        ids = [first_id or new_call_id(), *(new_call_id() for _ in calls[1:])]
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

    def _thought(self, text: str) -> list[Delta]:
        self.last_thought = text or self.last_thought
        return self._message(text, is_reasoning=True)

    def _message(self, text: str, *, is_reasoning: bool) -> list[Delta]:
        self._begins_message = True
        return self._delta(text, is_reasoning=is_reasoning)

    @property
    def _is_final(self) -> bool:
        return self._header.channel in ("final", "")

    @property
    def _is_whole(self) -> bool:
        return self._has_final or self._n_calls > 0

    def _delta(self, text: str, *, is_reasoning: bool) -> list[Delta]:
        if not text:
            return []
        has_some = self._has_reasoning if is_reasoning else self._has_content
        is_next, self._begins_message = self._begins_message and has_some, False
        text = GAP + text if is_next else text
        if is_reasoning:
            self._has_reasoning = True
            return [ReasoningDelta(text, is_next)]
        self._has_content = True
        self._has_text = self._has_text or bool(text.strip())
        return [ContentDelta(text, is_next=is_next, is_preamble=self._is_preamble)]


def _is_reasoning(header: Header) -> bool:
    """Return whether no one reads a body: thoughts, or words put into another's mouth."""
    if header.channel in ("commentary", ""):
        return header.role not in ("", "assistant") or bool(header.recipient)
    return header.channel != "final"


class RawParser:
    """Tokens as text with the tags spelled out, for prompts without a template."""

    n_reasoning = 0  # not told apart here
    broken_call, bad_call, is_over, is_reasoning, is_call = "", None, False, False, False
    has_answer, last_thought = True, ""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def is_content(self, token: int) -> bool:
        return token not in STOP_TOKENS

    def feed(self, token: int) -> list[Delta]:
        if token in STOP_TOKENS:
            return self.finish()
        is_text = token < FIRST_SPECIAL or self._vocabulary.own.get(token)
        rest = "" if is_text else self._decoder.decode(b"", final=True)
        text = rest + self._decoder.decode(self._vocabulary.bytes_of(token))
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        text = self._decoder.decode(b"", final=True)
        return [ContentDelta(text)] if text else []


class TokenParser(RawParser):
    """Tokens as they are."""

    def feed(self, token: int) -> list[Delta]:
        return [TokenDelta(token)]
