"""Tokens as they come -> events as they go out: parsed, cut at a stop string, and scored."""

from gptoss_local.chat.events import ContentDelta, Delta
from gptoss_local.chat.logprobs import ContentLogprobs
from gptoss_local.chat.parser import HarmonyParser, RawParser
from gptoss_local.chat.stop import StopFilter
from gptoss_local.engine.protocol import Logprob


class Reader:
    """One answer.

    Args:
        parser: Makes events of tokens.
        stop: Strings that end the answer.
        scored: Where log-probabilities go; None: nobody asked for them.
    """

    def __init__(
        self,
        parser: HarmonyParser | RawParser,
        stop: tuple[str, ...],
        scored: ContentLogprobs | None,
    ) -> None:
        self._parser = parser
        self.stop = StopFilter(stop)
        self._scored = scored

    def feed(self, token: int, logprob: Logprob | None = None) -> list[Delta]:
        """Take one token and return the events it completes; none behind a stop string."""
        if self._scored and logprob and self._parser.is_content(token):
            self._scored.add(token, logprob)
        return self._pass(self._parser.feed(token))

    def finish(self) -> list[Delta]:
        """Close what is open when the tokens end."""
        deltas = self._pass(self._parser.finish())
        if held := self.stop.flush():
            deltas.append(self._content(held))
        return deltas

    def _pass(self, deltas: list[Delta]) -> list[Delta]:
        """Pass content through the stop filter; what follows a stop string is dropped."""
        passed: list[Delta] = []
        if self._scored:
            self._scored.parsed(deltas)
        for delta in deltas:
            if self.stop.is_stopped:
                break
            if not isinstance(delta, ContentDelta):
                if held := self.stop.flush():  # belongs before it, and is no stop string any more
                    passed.append(self._content(held))
                passed.append(delta)
            elif text := self.stop.feed(delta.text):
                passed.append(self._content(text))
        return passed

    def _content(self, text: str) -> ContentDelta:
        return ContentDelta(text, self._scored.take(len(text)) if self._scored else ())
