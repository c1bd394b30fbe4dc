"""Run one model with a KV cache and compute buffers, on the thread that made the Context."""

import contextlib
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_uint8
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from gptoss_local.base.errors import ComputeError, ContextOverflowError, EngineError, ModelLoadError
from gptoss_local.base.types import CacheType, ContextParams
from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.chains import Chains
from gptoss_local.engine.llama.library import (
    forget_log,
    logged_buffers,
    recent_log,
    skip_unread_rows,
)
from gptoss_local.engine.llama.model import Model

State = npt.NDArray[np.uint8]
"""The result of `Context.save`, in the format of one version of llama.cpp."""

_CACHE_TYPES: dict[CacheType, int] = {"f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}  # ggml.h
_INVALID = -1  # llama_decode's status for a wrong batch; below it the device has failed, llama.h
_PARTIAL_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY, llama.h


class Context:
    """One unified KV cache for up to `n_seq_max` sequences.

    The layers with full attention keep every token (`n_ctx` cells, shared by all sequences); the
    sliding ones keep a ring. Raises ModelLoadError if the buffers do not fit into memory.
    """

    def __init__(self, model: Model, params: ContextParams) -> None:
        # A decode call is one ubatch. With several, finding cells for a later one may purge
        # positions of the sliding layers that an earlier one needs (`apply_ubatch`,
        # llama-kv-cache.cpp), and its logits are wrong.
        self.n_batch = params.n_batch
        self.n_seq_max = params.n_seq_max
        self.cache_type = params.cache_type
        self.n_swa = model.n_swa
        self.n_vocab = model.n_vocab
        self._spare = params.n_seq_max  # a sequence of our own, for `save`
        self.n_outputs_max = max(params.n_outputs_max, params.n_seq_max)
        forget_log()
        self._handle = llama_cpp.llama_init_from_model(model.handle, self._c_params(params))
        if not self._handle:
            raise ModelLoadError(
                f"llama.cpp could not make a context of {params.n_ctx} tokens: {recent_log()}",
                hint="Ask for a smaller context (num_ctx, GPTOSS_CONTEXT_LENGTH).",
            )
        self.n_ctx = int(llama_cpp.llama_n_ctx(self._handle))  # rounded up to a multiple of 256
        # If the sliding layers have room for a window of each sequence (`llama_kv_cache_iswa`).
        self.can_share = self.n_ctx >= self.n_swa * (params.n_seq_max + 1) + self.n_batch
        skip_unread_rows(int(self._handle))
        self._own_batch = Batch(self.n_batch)
        self.chains = Chains(int(self._handle))
        if model.adapter:
            self._apply(model.adapter)
        self.buffers = logged_buffers()
        model.close_first.append(self.close)

    def _c_params(self, params: ContextParams) -> object:
        c = llama_cpp.llama_context_default_params()
        c.n_batch = c.n_ubatch = self.n_batch
        c.n_ctx, c.n_seq_max = params.n_ctx, params.n_seq_max + 1
        c.n_outputs_max = max(self.n_outputs_max, c.n_seq_max)
        c.n_outputs_max_per_seq = params.n_outputs_max_per_seq
        c.n_threads, c.n_threads_batch = params.n_threads_decode, params.n_threads_prefill
        c.type_k = c.type_v = _CACHE_TYPES[params.cache_type]
        c.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        c.kv_unified, c.no_perf, c.op_offload = True, True, params.op_offload
        c.swa_full = False  # the library's default True doubles the cache for nothing
        return c

    def _apply(self, adapter: Any) -> None:
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter)
        llama_cpp.llama_set_adapters_lora(self.handle, adapters, 1, (c_float * 1)(1.0))
        self._own_batch.clear()
        self.decode_extra(self._own_batch, [0])

    @property
    def handle(self) -> int:
        if not self._handle:
            raise EngineError("the context is closed")
        return int(self._handle)

    def decode(self, tokens: Sequence[int], *, position: int, seq_id: int = 0) -> None:
        """Run at most `n_batch` tokens of a sequence through the model; the last has logits."""
        if len(tokens) > self.n_batch:
            raise EngineError(f"{len(tokens)} tokens are more than a batch of {self.n_batch}")
        self._own_batch.clear()
        self._own_batch.extend(tokens, position, seq_id, n_outputs=1)
        self.decode_batch(self._own_batch)

    def decode_batch(self, batch: Batch) -> None:
        """Run a batch; after ContextOverflowError nothing has changed."""
        if batch.n_tokens > self.n_batch or batch.n_outputs > self.n_outputs_max:
            raise EngineError(  # llama.cpp would abort the process
                f"a batch of {batch.n_tokens} tokens and {batch.n_outputs} outputs is too large"
            )
        self._decode(batch)

    def _decode(self, batch: Batch) -> None:
        batch.struct.n_tokens = batch.n_tokens
        self.chains.expect(batch)
        status = llama_cpp.llama_decode(self.handle, batch.struct)
        if status == 1:
            raise ContextOverflowError(f"the context of {self.n_ctx} tokens is full")
        if status != 0:
            kind = ComputeError if status < _INVALID else EngineError
            raise kind(f"llama_decode failed with status {status}: {recent_log()}")

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        """Return the logits of an output of the last batch, (n_vocab,), until the next decode."""
        logits = llama_cpp.llama_get_logits_ith(self.handle, row)
        # NOTE: of a row with a chain of LIKELIEST, llama.cpp returns only the kept logits here
        if not logits or 0 < self.n_kept(row) < self.n_vocab:
            raise EngineError(f"row {row} has no logits, or the device kept them")
        return np.ctypeslib.as_array(logits, (self.n_vocab,))

    def logits_beside_chains(self, i_output: int) -> npt.NDArray[np.float32]:
        """Return the logits of output `i_output`; stale if all outputs of the batch have chains."""
        logits = llama_cpp.llama_get_logits(self.handle)
        start = i_output * self.n_vocab
        return np.ctypeslib.as_array(logits, (start + self.n_vocab,))[start:]

    def n_kept(self, row: int) -> int:
        """Return how many logits a chain of LIKELIEST kept; on a device without top-k, all."""
        return int(llama_cpp.llama_get_sampled_logits_count_ith(self.handle, row))

    def likeliest(self, row: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return ids and logits of the tokens that were kept of an output."""
        n = self.n_kept(row)
        ids = llama_cpp.llama_get_sampled_candidates_ith(self.handle, row)
        logits = llama_cpp.llama_get_sampled_logits_ith(self.handle, row)
        return np.ctypeslib.as_array(ids, (n,)), np.ctypeslib.as_array(logits, (n,))

    def synchronize(self) -> None:
        llama_cpp.llama_synchronize(self.handle)

    def plan_memory(self) -> None:
        """Have llama.cpp plan its memory for the largest batch again, as at the start.

        Takes 0.15 s in the next decode. After a graph that this plan does not fit, each step of a
        growing prompt plans again, which takes 3 ms and waits for the device.
        """
        llama_cpp.llama_set_adapter_cvec(self.handle, None, 0, 0, 0, 0)  # none, as before

    def warm_up(self) -> None:
        """Decode a whole batch and forget it: the first one takes a GPU 70 ms more."""
        with contextlib.suppress(ContextOverflowError):
            self._own_batch.clear()
            self.decode_extra(self._own_batch, [0] * self.n_batch)

    def decode_extra(self, batch: Batch, tokens: Sequence[int]) -> int:
        """Run a batch with `tokens` of a temporary sequence appended; return the last one's row."""
        row = batch.extend(tokens, 0, self._spare, n_outputs=1)
        try:
            self._decode(batch)
        finally:
            memory = llama_cpp.llama_get_memory(self.handle)
            llama_cpp.llama_memory_seq_rm(memory, self._spare, -1, -1)
        return row

    def set_threads(self, *, n_decode: int, n_prefill: int) -> None:
        llama_cpp.llama_set_n_threads(self.handle, n_decode, n_prefill)

    def remove(self, seq_id: int, start: int = 0, end: int = -1) -> None:
        """Drop the positions `start` .. `end` - 1 of `seq_id`; an `end` of -1 means all from there.

        NOTE: a later decode at `start` is only valid if `can_resume` says so.
        """
        if not llama_cpp.llama_memory_seq_rm(self._memory_of(seq_id), seq_id, start, end):
            raise EngineError(f"cannot remove positions {start}..{end} of sequence {seq_id}")

    def copy(self, source: int, target: int, start: int = 0, end: int = -1) -> None:
        """Share the cached positions of `source` with `target`; no data moves.

        NOTE: shared cells of the sliding layers are not recycled, so for a lasting copy `restore` a
        partial state of `target` afterwards, which gives it its own.
        """
        self._memory_of(target)
        llama_cpp.llama_memory_seq_cp(self._memory_of(source), source, target, start, end)

    def positions(self, seq_id: int) -> tuple[int, int]:
        """Return the first and last position of `seq_id` in the *sliding* layers; (-1, -1): none.

        The layers with full attention have 0 .. last, as long as only tails have been removed.
        """
        memory = self._memory_of(seq_id)
        first = llama_cpp.llama_memory_seq_pos_min(memory, seq_id)
        return int(first), int(llama_cpp.llama_memory_seq_pos_max(memory, seq_id))

    def can_resume(self, seq_id: int, position: int) -> bool:
        """Return whether `seq_id`, cut to `position`, has the `n_swa` - 1 positions before it."""
        first, last = self.positions(seq_id)
        if position == 0:
            return True
        return position - 1 <= last and 0 <= first <= max(0, position - self.n_swa + 1)

    def save(self, seq_id: int, *, partial: bool = False, end: int | None = None) -> State:
        """Copy the cache of `seq_id` to host memory.

        With `partial`, only the sliding layers, without cells that no later token sees: enough to
        return to this position while the other layers still hold the tokens before it. With `end`,
        as if the sequence had been cut to this position, which must be resumable.
        """
        last = self.positions(seq_id)[1]
        if last == -1:
            raise EngineError(f"sequence {seq_id} is empty: nothing to save")
        if end is None or end == last + 1:
            return self._save(seq_id, partial=partial)
        if end == 0 or not self.can_resume(seq_id, end):
            raise EngineError(f"sequence {seq_id} cannot be saved as of position {end}")
        # NOTE: llama.cpp omits cells that the *last* position masks
        memory = self._memory_of(seq_id)
        llama_cpp.llama_memory_seq_cp(memory, seq_id, self._spare, 0, end)
        try:
            return self._save(self._spare, partial=partial)
        finally:
            llama_cpp.llama_memory_seq_rm(memory, self._spare, -1, -1)

    def _save(self, seq_id: int, *, partial: bool) -> State:
        flags = _PARTIAL_ONLY if partial else 0
        n_bytes = llama_cpp.llama_state_seq_get_size_ext(self.handle, seq_id, flags)
        try:
            state = np.empty(n_bytes, np.uint8)
        except MemoryError as error:  # as on Windows, where memory is promised only if it is there
            raise EngineError(f"no memory for {n_bytes} bytes of sequence {seq_id}") from error
        n_written = llama_cpp.llama_state_seq_get_data_ext(
            self.handle, state.ctypes.data_as(POINTER(c_uint8)), n_bytes, seq_id, flags
        )
        if n_written != n_bytes:
            raise EngineError(f"cannot save sequence {seq_id}: {recent_log()}")
        return state

    def restore(self, seq_id: int, state: State, *, partial: bool = False) -> None:
        """Fill `seq_id` with a state that `save` took of any sequence, with the same `partial`.

        Leaves it empty and raises EngineError without room, or for another model or library.
        """
        self._memory_of(seq_id)
        flags = _PARTIAL_ONLY if partial else 0
        n_read = llama_cpp.llama_state_seq_set_data_ext(
            self.handle, state.ctypes.data_as(POINTER(c_uint8)), state.nbytes, seq_id, flags
        )
        if n_read != state.nbytes:
            self.remove(seq_id)
            raise EngineError(f"cannot restore sequence {seq_id}: {recent_log()}")

    def _memory_of(self, seq_id: int) -> int:
        if not 0 <= seq_id < self.n_seq_max:  # llama.cpp would abort the process
            raise EngineError(f"sequence {seq_id} is not one of 0 .. {self.n_seq_max - 1}")
        return int(llama_cpp.llama_get_memory(self.handle))

    def close(self) -> None:
        if self._handle:
            llama_cpp.llama_free(self._handle)
            self.chains.close()
            self._handle = None
