"""One answer as it arrives: its tokens, its end by harmony's rules, and its cost."""

import time
from collections.abc import Callable

from gptoss_local.base.types import FinishReason, Usage
from gptoss_local.engine.protocol import Generate, Logprob
from gptoss_local.harmony.vocabulary import CALL, MESSAGE, RETURN, START, Vocabulary
from gptoss_local.runner.upstream.wire import AnswerChunk

_PROBE = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>"
_CHANNELS = ("analysis", "commentary", "final")

Closer = Callable[[list[int]], int]
"""Returns the stop token that ends a sequence of tokens, for upstreams that do not say it."""


class UpstreamAnswer:
    """An answer on its way; `runs_on`: the upstream wrote more after a stop token."""

    def __init__(self, asked: Generate, closer: Closer) -> None:
        self.end: FinishReason | None = None
        self.is_cancelled = self.runs_on = False
        self._asked = asked
        self._closer = closer
        self._tokens: list[int] = []
        self._stop_token: int | None = None
        self._n_cached = 0
        self._start_s = time.monotonic()
        self._first_s = self._last_s = 0.0

    def add(self, chunk: AnswerChunk) -> tuple[list[int], list[Logprob]]:
        is_stopped = self._is_stopped
        n = 0 if is_stopped else len(chunk.tokens)
        for i, token in enumerate(chunk.tokens[:n], 1):
            if token in self._asked.stop_tokens:
                n, self.end = i, "stop"
                break
        tokens = chunk.tokens[:n]
        self.runs_on = self.runs_on or n < len(chunk.tokens)
        if tokens:
            self._last_s = time.monotonic()
            self._first_s = self._first_s or self._last_s
            self._tokens += tokens
        if chunk.n_cached is not None:
            self._n_cached = min(chunk.n_cached, len(self._asked.prompt))
        self.end = self.end or chunk.end
        self._stop_token = chunk.stop_token if self._stop_token is None else self._stop_token
        return tokens, chunk.logprobs[:n]

    def missing_stop(self) -> list[int]:
        """Return a withheld stop token, by the upstream or harmony's rules, as a list."""
        if self.end != "stop" or self._is_stopped:
            return []
        token = self._stop_token
        if token not in self._asked.stop_tokens:
            token = self._closer([*self._asked.prompt, *self._tokens])
        self._tokens.append(token)
        return [token]

    def usage(self) -> Usage:
        """Return the cost so far. The queue of the upstream is a part of the prefill."""
        first_s = self._first_s or time.monotonic()
        return Usage(
            n_prompt=len(self._asked.prompt),
            n_generated=len(self._tokens),
            prefill_ns=round((first_s - self._start_s) * 1e9),
            decode_ns=round(max(0.0, self._last_s - first_s) * 1e9),
            n_cached=self._n_cached,
        )

    @property
    def _is_stopped(self) -> bool:
        return bool(self._tokens) and self._tokens[-1] in self._asked.stop_tokens


def probe(vocabulary: Vocabulary) -> tuple[list[int], set[int]]:
    """Return a prompt and its possible next tokens with any gpt-oss; asking costs one token."""
    expected = {vocabulary.encode(channel)[0] for channel in _CHANNELS}
    return vocabulary.encode_tagged(_PROBE), expected


def stop_token_of(vocabulary: Vocabulary, tokens: list[int]) -> int:
    """Return the stop token of tokens which an upstream ended without.

    A message to a recipient is a call, and any other one that ends an answer is its last.
    """
    begin = max((i for i, token in enumerate(tokens) if token == START), default=0)
    header = tokens[begin:]
    if MESSAGE in header:
        header = header[: header.index(MESSAGE)]
    return CALL if " to=" in vocabulary.encoding.decode(header) else RETURN
