"""Compile grammars with llguidance, and ask which tokens they allow next.

The mask of all tokens is computed only if a sampled token is not allowed.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import llguidance
import numpy as np
import numpy.typing as npt

from gptoss_local.base.errors import EngineError, UsageError
from gptoss_local.base.formats.gguf_file import read_array, read_tokens
from gptoss_local.base.formats.o200k import (
    BYTE_OF_CHAR,
    FIRST_SPECIAL,
    SPLIT_REGEX,
    TYPES_KEY,
    own_tokens,
)

_END_OF_TEXT = 199_999  # allowed by the library after a whole answer; grammars name their own end


class Mask:
    """The state of one grammar over the tokens of one answer."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self.n_rejected = 0  # sampled tokens that were not allowed
        self.is_rejected = False  # the last one was, and has not been replaced yet

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_stopped()

    def accept(self, token: int) -> bool:
        """Advance by `token` if it is allowed; otherwise only count it."""
        if self._matcher.try_consume_tokens([token]) == 1:
            self.is_rejected = False
            return True
        self._check()
        self.n_rejected += 1
        self.is_rejected = True
        return False

    def accept_forced(self) -> list[int]:
        tokens = self._matcher.compute_ff_tokens()
        if tokens and self._matcher.try_consume_tokens(tokens) != len(tokens):
            raise EngineError(f"the grammar forces tokens that it refuses: {tokens}")
        return tokens

    def allowed(self) -> npt.NDArray[np.intp]:
        """Return the ids of all tokens that may come next, in order; at least one."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.flatnonzero(np.unpackbits(bits, bitorder="little"))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(self._matcher)


class MaskCompiler:
    """Makes masks on a thread of its own, as a large grammar may take a second.

    The first waits for the tokenizer: about a second, in which Python's lock is held, and 85 MB.
    """

    def __init__(self, model_path: Path) -> None:
        self._model_path = model_path
        self._tokenizer: llguidance.LLTokenizer | None = None  # the thread's
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="masks")

    def compile(self, grammar: str) -> Future[Mask]:
        """Begin to make a mask. The future raises UsageError if llguidance refuses the grammar."""
        return self._thread.submit(self._compile, grammar)

    def _compile(self, grammar: str) -> Mask:
        if self._tokenizer is None:
            tokens = read_tokens(self._model_path)
            types = read_array(self._model_path, TYPES_KEY)
            try:
                self._tokenizer = _make_tokenizer(tokens, types)
            except (KeyError, ValueError) as error:
                raise EngineError(f"the vocabulary cannot be masked: {error}") from error
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _refusal(matcher)
        return Mask(matcher)


def _make_tokenizer(tokens: list[str], types: list[int]) -> llguidance.LLTokenizer:
    """PERF: without slices, which make masks of free strings cheaper and the start 0.6 s longer."""
    byte_of = BYTE_OF_CHAR.__getitem__
    ranks = {bytes(map(byte_of, token)): rank for rank, token in enumerate(tokens[:FIRST_SPECIAL])}
    specials = {token: FIRST_SPECIAL + i for i, token in enumerate(tokens[FIRST_SPECIAL:])}
    for i, text in own_tokens(tokens, types).items():
        if text and ranks.setdefault(text, i) == i:  # else it spells what another token does
            del specials[tokens[i]]
    tokenizer: llguidance.LLTokenizer = llguidance.LLTokenizer.from_tiktoken(  # type: ignore[attr-defined]
        encoder=ranks,
        special_tokens=specials,
        pattern=SPLIT_REGEX,
        eos_token=_END_OF_TEXT,
        n_vocab=len(tokens),
        slices=[],
    )
    return tokenizer


def _refusal(matcher: llguidance.LLMatcher) -> UsageError:
    reason = " ".join(matcher.get_error().removesuffix("<non-verbose/>").split())
    return UsageError(
        f"the answer's format cannot be enforced: {reason}", hint="Simplify the JSON schema."
    )
