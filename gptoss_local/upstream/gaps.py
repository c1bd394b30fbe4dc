"""Token ids that llama-server leaves out of its stream: all of a character but its last."""

import functools

import msgspec

from gptoss_local.errors import UpstreamError
from gptoss_local.harmony.vocabulary import Vocabulary
from gptoss_local.upstream.wire import AnswerChunk


class Gaps:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._n_seen = 0

    def fill(self, chunk: AnswerChunk) -> AnswerChunk:
        """Return a chunk with the tokens left out before it, unless the limit cut them off.

        Raises UpstreamError for log-probabilities, which are left out, too.
        """
        if not chunk.tokens or chunk.n_total is None:
            return chunk
        n_missing = chunk.n_total - self._n_seen - len(chunk.tokens)
        self._n_seen = chunk.n_total
        if n_missing <= 0:
            return chunk
        if chunk.logprobs:
            raise UpstreamError(
                "llama-server sends no log-probabilities of parts of a character",
                hint="Leave out logprobs, or use a model of this machine.",
            )
        return msgspec.structs.replace(
            chunk, tokens=_tokens_of(chunk.text, chunk.tokens[-1], n_missing + 1, self._vocabulary)
        )


def _tokens_of(text: str, last: int, n: int, vocabulary: Vocabulary) -> list[int]:
    """Return `n` tokens with this text and a known last one, split as usual, or the first that fit.

    Replaced bytes that are not UTF-8 fit nothing.
    """
    usual = vocabulary.encode(text)
    if len(usual) == n and usual[-1] == last:
        return usual
    head = text.encode().removesuffix(vocabulary.bytes_of(last))
    found = _split(head, n - 1, _ids(vocabulary))
    return usual if found is None else [*found, last]


def _split(text: bytes, n: int, ids: dict[bytes, int]) -> list[int] | None:
    if not n:
        return None if text else []
    for end in range(len(text), 0, -1):
        if (token := ids.get(text[:end])) is not None:
            rest = _split(text[end:], n - 1, ids)
            if rest is not None:
                return [token, *rest]
    return None


@functools.lru_cache(1)
def _ids(vocabulary: Vocabulary) -> dict[bytes, int]:
    return {text: token for token, text in enumerate(vocabulary.token_bytes)}
