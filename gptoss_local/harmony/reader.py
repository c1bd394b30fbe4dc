"""Turns tokens into events: parsed, cut at a stop string, and scored."""

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from gptoss_local.base.events import GAP, ContentDelta, Delta, Logprobs, TokenLogprob, ToolCall
from gptoss_local.engine.protocol import Logprob
from gptoss_local.harmony.parser import HarmonyParser, RawParser
from gptoss_local.harmony.vocabulary import Vocabulary


class WaitingLogprobs:
    """The tokens of an answer, until the events that carry them.

    A token of content goes with the piece that has its first character. Text without tokens is our
    gap between messages, and text that became content later, such as a call of no function.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._waiting: deque[TokenLogprob] = deque()
        self._n_parsed = 0  # characters of content that the parser has delivered
        self._n_shown = 0  # and the stop filter has let through

    def add(self, token: int, logprob: Logprob, *, is_content: bool) -> None:
        bytes_of = self._vocabulary.bytes_of
        top = tuple((bytes_of(other), value) for other, value in logprob.top)
        offset = self._n_parsed if is_content else None
        self._waiting.append(TokenLogprob(bytes_of(token), logprob.logprob, top, offset))

    def parsed(self, deltas: Iterable[Delta]) -> None:
        self._n_parsed += sum(len(d.text) for d in deltas if isinstance(d, ContentDelta))

    def take(self, n_characters: int) -> Logprobs:
        """Return the tokens up to those that begin in the next piece of content, of that length."""
        self._n_shown += n_characters
        shown = []
        while self._waiting and (self._waiting[0].offset or 0) < self._n_shown:
            shown.append(self._waiting.popleft())
        return tuple(shown)

    def take_all(self) -> Logprobs:
        """Return all tokens for an event that shows no content."""
        shown, self._waiting = self._waiting, deque()
        return tuple(t if t.offset is None else replace(t, offset=None) for t in shown)


class StopFilter:
    """Looks for stop strings in pieces of text; `found` is the one that ended it.

    It holds back as little as possible: text that may begin a stop string.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self.found = ""

    @property
    def is_stopped(self) -> bool:
        return bool(self.found)

    def feed(self, text: str) -> str:
        """Return the part of the text that is certainly before any stop string."""
        if not self._stop:
            return text
        text = self._held + text
        starts = [(at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if starts:
            start, self.found = min(starts)
            self._held = ""
            return text[:start]
        n_held = max(_n_begun(text, s) for s in self._stop)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def flush(self) -> str:
        """Return the text held back when the answer ends without a stop string."""
        held, self._held = self._held, ""
        return held


def _n_begun(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that begins `stop`."""
    for n in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0


class Reader:
    def __init__(
        self,
        parser: HarmonyParser | RawParser,
        stop: tuple[str, ...],
        scored: WaitingLogprobs | None,
        *,
        one_call: bool = False,
    ) -> None:
        self._parser = parser
        self.stop = StopFilter(stop)
        self._scored = scored
        self._one_call, self._has_call = one_call, False
        self._is_next = self._is_preamble = False  # of the content that comes next

    @property
    def is_over(self) -> bool:
        return self._is_cut or self._parser.is_over

    @property
    def _is_cut(self) -> bool:
        return self.stop.is_stopped or (self._one_call and self._has_call)

    def feed(self, token: int, logprob: Logprob | None = None) -> list[Delta]:
        """Take one token and return the events it completes; none once it is over."""
        if self._scored and logprob:
            self._scored.add(token, logprob, is_content=self._parser.is_content(token))
        return self._pass(self._parser.feed(token))

    def finish(self) -> list[Delta]:
        deltas = self._pass(self._parser.finish())
        if held := self.stop.flush():
            deltas.append(self._content(held))
        return deltas

    def _pass(self, deltas: list[Delta]) -> list[Delta]:
        passed: list[Delta] = []
        if self._scored:
            self._scored.parsed(deltas)
        for delta in deltas:
            if self._is_cut:
                break
            self._has_call = self._has_call or isinstance(delta, ToolCall)
            if not isinstance(delta, ContentDelta):
                if held := self.stop.flush():  # it comes first; it is not a stop string
                    passed.append(self._content(held))
                passed.append(delta)
                continue
            if delta.is_next and (held := self._end_message()):
                passed.append(self._content(held))
            self._is_preamble = delta.is_preamble
            if text := "" if self.stop.is_stopped else self.stop.feed(delta.own_text):
                passed.append(self._content(text))
        return passed

    def _end_message(self) -> str:
        """Return the held end of a message that another one follows; a stop string ends with it."""
        held = self.stop.feed(GAP)
        if self.stop.is_stopped:
            return held
        self._is_next = True
        return (held + self.stop.flush()).removesuffix(GAP)

    def _content(self, text: str) -> ContentDelta:
        is_next, self._is_next = self._is_next, False
        text = GAP + text if is_next else text
        logprobs = self._scored.take(len(text)) if self._scored else ()
        return ContentDelta(text, logprobs, is_next, self._is_preamble)
