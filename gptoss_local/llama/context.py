"""A KV cache and the compute buffers over one model: decode token ids, read the outcome.

Thread: a Context belongs to the thread that made it.
"""

from collections.abc import Sequence
from ctypes import c_void_p

import llama_cpp
import msgspec
import numpy as np
import numpy.typing as npt

from gptoss_local.errors import ContextOverflowError, EngineError, ModelLoadError
from gptoss_local.llama.library import recent_log
from gptoss_local.llama.model import Model


class ContextParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a context, in tokens, and its CPU threads for prefill and for decode.

    `n_batch` bounds one `decode` call, `n_ubatch` what the device computes at once.
    `n_outputs_max` bounds the rows of logits of one call; each costs 0.8 MB (n_vocab floats) on
    the device and on the host.
    """

    n_ctx: int
    n_threads_prefill: int
    n_threads_decode: int
    n_batch: int = 512
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_outputs_max: int = 1


class Context:
    """One unified KV cache for up to `n_seq_max` sequences.

    Raises:
        ModelLoadError: the buffers do not fit into memory.
    """

    def __init__(self, model: Model, params: ContextParams) -> None:
        c = llama_cpp.llama_context_default_params()
        c.n_ctx = params.n_ctx
        c.n_batch = params.n_batch
        c.n_ubatch = min(params.n_ubatch, params.n_batch)
        c.n_seq_max = params.n_seq_max
        c.n_outputs_max = params.n_outputs_max
        c.n_threads, c.n_threads_batch = params.n_threads_decode, params.n_threads_prefill
        c.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        c.kv_unified = True
        c.swa_full = False  # the library's default True doubles the cache for nothing
        c.no_perf = True
        self._handle = llama_cpp.llama_init_from_model(model.handle, c)
        if not self._handle:
            raise ModelLoadError(
                f"llama.cpp could not make a context of {params.n_ctx} tokens: {recent_log()}",
                hint="Ask for a smaller context (num_ctx, GPTOSS_CONTEXT_LENGTH).",
            )
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        self.n_batch = params.n_batch
        self._tokens = _view(self._batch.token, params.n_batch)
        self._positions = _view(self._batch.pos, params.n_batch)
        self._outputs = _view(self._batch.logits, params.n_batch)
        for i in range(params.n_batch):
            self._batch.n_seq_id[i] = 1
        self._assign_rows(0)

    @property
    def handle(self) -> int:
        """Address of the `llama_context`, for the other classes of this package."""
        return int(self._handle)

    @property
    def n_ctx(self) -> int:
        """Tokens the cache really holds (llama.cpp rounds the wish up to a multiple of 256)."""
        return int(llama_cpp.llama_n_ctx(self._handle))

    def decode(self, tokens: Sequence[int], *, position: int, seq_id: int = 0) -> None:
        """Run `tokens` through the model; logits are kept for the last one only.

        Args:
            tokens: At most `n_batch` ids, which take the positions `position`, `position + 1`, ….
            position: Position of the first id in its sequence.
            seq_id: The sequence they belong to.

        Raises:
            ContextOverflowError: the cache has no cell left.
            EngineError: llama.cpp failed otherwise.
        """
        n = len(tokens)
        batch = self._batch
        batch.n_tokens = n
        if n == 1:  # the decode path: two stores are cheaper than numpy slices
            batch.token[0] = tokens[0]
            batch.pos[0] = position
        else:
            self._tokens[:n] = tokens
            self._positions[:n] = np.arange(position, position + n)
            self._outputs[:n] = 0
        batch.logits[n - 1] = 1
        if seq_id != self._rows_seq_id:
            self._assign_rows(seq_id)
        status = llama_cpp.llama_decode(self._handle, batch)
        if status == 1:
            raise ContextOverflowError(f"the context of {self.n_ctx} tokens is full")
        if status != 0:
            raise EngineError(f"llama_decode failed with status {status}: {recent_log()}")

    def remove(self, seq_id: int, *, start: int = 0) -> None:
        """Drop the cache of `seq_id` from position `start` on.

        NOTE: success does not make a later decode at `start` valid once the sliding window has
        moved more than its ring beyond it; only `start=0` is always safe.
        """
        llama_cpp.llama_memory_seq_rm(self._memory, seq_id, start, -1)

    def _assign_rows(self, seq_id: int) -> None:
        """Make every row of the batch one of `seq_id`."""
        # PERF: 0.15 us a row, so not at every call
        for i in range(self.n_batch):
            self._batch.seq_id[i][0] = seq_id
        self._rows_seq_id = seq_id

    def close(self) -> None:
        if self._handle:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._handle)
            self._handle = None


def _view(pointer: c_void_p, n: int) -> npt.NDArray[np.generic]:
    """A numpy view on one of the arrays of a llama_batch, valid as long as the batch."""
    return np.ctypeslib.as_array(pointer, (n,))
