"""Assigns log-probabilities to the pieces of content that they belong to.

Tokens and pieces have other borders: characters may take several tokens, stop strings hold text
back.
"""

from collections import deque
from collections.abc import Iterable

from gptoss_local.base.events import ContentDelta, Delta, TokenLogprob
from gptoss_local.engine.protocol import Logprob
from gptoss_local.harmony.vocabulary import Vocabulary


class ContentLogprobs:
    """The tokens of an answer's content, until the pieces that show them.

    A token goes with the piece that has its first character. Text without tokens is our gap between
    messages, and text that became content later, such as a call of no function.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._waiting: deque[TokenLogprob] = deque()
        self._n_parsed = 0  # characters of content that the parser has delivered
        self._n_shown = 0  # and the stop filter has let through

    def add(self, token: int, logprob: Logprob) -> None:
        bytes_of = self._vocabulary.bytes_of
        top = tuple((bytes_of(other), value) for other, value in logprob.top)
        entry = TokenLogprob(bytes_of(token), logprob.logprob, top, self._n_parsed)
        self._waiting.append(entry)

    def parsed(self, deltas: Iterable[Delta]) -> None:
        self._n_parsed += sum(len(d.text) for d in deltas if isinstance(d, ContentDelta))

    def take(self, n_characters: int) -> tuple[TokenLogprob, ...]:
        """Return the tokens that begin in the next piece of content, of so many characters."""
        self._n_shown += n_characters
        shown = []
        while self._waiting and self._waiting[0].offset < self._n_shown:
            shown.append(self._waiting.popleft())
        return tuple(shown)
