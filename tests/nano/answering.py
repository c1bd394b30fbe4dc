"""Answers many questions behind one context with llama.cpp, reading the context once."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import llama_cpp

from gptoss_local.chat.vocabulary import STOP_TOKENS
from gptoss_local.llama.context import Context, ContextParams
from gptoss_local.llama.model import Model
from gptoss_local.llama.sampler import Sampler
from gptoss_local.types import SamplingParams


class Answerer:
    """A model that continues from a context it has read.

    Args:
        gguf: The model file.
        n_ctx: Most tokens of context, question and answer together.
        n_threads: For prefill and decode.
    """

    def __init__(self, gguf: Path, *, n_ctx: int, n_threads: int) -> None:
        params = ContextParams(n_ctx=n_ctx, n_threads_prefill=n_threads, n_threads_decode=n_threads)
        self._context = Context(Model(gguf), params)
        self._n_read = 0
        self._state: ctypes.Array[ctypes.c_uint8] | None = None

    def read(self, tokens: Sequence[int]) -> None:
        """Take a new context in place of the last.

        The whole state is kept, not a position to go back to: the sliding window forgets what is
        behind it, so a question could only be removed again if it were short.
        """
        self._state = None
        self._context.remove(0)
        self._prefill(tokens, 0)
        self._n_read = len(tokens)
        handle = self._context.handle
        n_bytes = llama_cpp.llama_state_seq_get_size(handle, 0)
        self._state = (ctypes.c_uint8 * n_bytes)()
        assert llama_cpp.llama_state_seq_get_data(handle, self._state, n_bytes, 0) == n_bytes

    def answer(self, prompt: Sequence[int], *, n_max: int, sampling: SamplingParams) -> list[int]:
        """Continue the context by `prompt` and generate.

        Returns:
            At most `n_max` tokens, the stop token included.
        """
        self._rewind()
        self._prefill(prompt, self._n_read)
        position = self._n_read + len(prompt)
        sampler = Sampler(sampling)
        tokens: list[int] = []
        try:
            while len(tokens) < n_max:
                tokens.append(sampler.sample(self._context))
                if tokens[-1] in STOP_TOKENS:
                    break
                self._context.decode(tokens[-1:], position=position)
                position += 1
        finally:
            sampler.close()
        return tokens

    def _rewind(self) -> None:
        """Go back to the end of the context."""
        self._context.remove(0)
        state = self._state
        assert state is not None
        n_bytes = llama_cpp.llama_state_seq_set_data(self._context.handle, state, len(state), 0)
        assert n_bytes == len(state)

    def _prefill(self, tokens: Sequence[int], position: int) -> None:
        n_batch = self._context.n_batch
        for start in range(0, len(tokens), n_batch):
            self._context.decode(tokens[start : start + n_batch], position=position + start)
