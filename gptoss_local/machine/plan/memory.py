"""Predict llama.cpp's allocations in closed form: never too little, within 3 %.

Figures marked "GPU" were measured by `bench/plan_memory.py` on an H200 and are compared by
`tests/plan/test_gpu_memory.py`, the others by `tests/plan/test_memory.py`.
"""

import msgspec

from gptoss_local.base.types import CacheType, ContextParams
from gptoss_local.machine.plan.facts import ModelFacts

_CACHE_BITS: dict[CacheType, float] = {"f16": 16, "bf16": 16, "q8_0": 8.5, "q4_0": 4.5}
_CACHE_BLOCK: dict[CacheType, int] = {"f16": 1, "bf16": 1, "q8_0": 32, "q4_0": 32}  # ggml-common.h
_MIB = 2**20
MAX_HOST_BATCH = 2048
"""Batches of more tokens always bring experts to the GPU."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a context, which decide its memory; `n_outputs` is rows of logits a step."""

    n_ctx: int
    n_batch: int
    n_seq: int
    n_outputs: int
    cache_type: CacheType = "f16"

    @property
    def n_rows(self) -> int:
        """Count the rows of logits that llama.cpp reserves: our context has an extra sequence."""
        return max(self.n_outputs, self.n_seq + 1)

    def context_params(self, *, n_threads_prefill: int, n_threads_decode: int) -> ContextParams:
        return ContextParams(
            n_ctx=self.n_ctx,
            n_threads_prefill=n_threads_prefill,
            n_threads_decode=n_threads_decode,
            n_batch=self.n_batch,
            n_seq_max=self.n_seq,
            n_outputs_max=self.n_outputs,
            n_outputs_max_per_seq=1 + self.n_outputs - self.n_seq,
            cache_type=self.cache_type,
        )


def n_cells(facts: ModelFacts, shape: Shape) -> tuple[int, int]:
    """Return the cells of the layers with full attention, and of the sliding ones.

    Source: the constructor of `llama_kv_cache_iswa`; `llama_context` pads n_ctx.
    """
    full = pad(shape.n_ctx)
    return full, pad(min(full, facts.n_swa * (shape.n_seq + 1) + _n_ubatch(shape)))


def cache_bytes(facts: ModelFacts, shape: Shape, layer: int) -> int:
    """Return the bytes of keys and values of one layer; even ones slide (`set_swa_pattern`)."""
    full, sliding = n_cells(facts, shape)
    return round((full if layer % 2 else sliding) * cell_bytes(facts, shape.cache_type))


def cell_bytes(facts: ModelFacts, cache_type: CacheType) -> float:
    return 2 * facts.n_heads_kv * facts.n_key * _CACHE_BITS[cache_type] / 8


def token_bytes(facts: ModelFacts, cache_type: CacheType) -> int:
    """Return the bytes of a token of context in the layers with full attention."""
    return round(facts.n_layers // 2 * cell_bytes(facts, cache_type))


def can_cache(facts: ModelFacts, cache_type: CacheType) -> bool:
    """Check that the keys of a head are whole blocks of the type, as llama.cpp demands."""
    return facts.n_key % _CACHE_BLOCK[cache_type] == 0


def all_cache_bytes(facts: ModelFacts, shape: Shape) -> int:
    return sum(cache_bytes(facts, shape, layer) for layer in range(facts.n_layers))


def compute_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Return an upper bound of the graph's buffer on a device that computes whole layers."""
    gaps = round((2.5 + 0.4 * shape.n_seq) * _MIB)  # between tensors, found by experiment
    return round(max(_in_layer(facts, shape), _in_head(facts, shape)) * 1.005) + gaps


def _in_layer(facts: ModelFacts, shape: Shape) -> int:
    return _n_ubatch(shape) * _token_bytes(facts) + mask_bytes(facts, shape)


def _in_head(facts: ModelFacts, shape: Shape) -> int:
    n_logits = head_bytes(facts, shape) * (2 if facts.adapts_head else 1)
    return n_logits + _n_ubatch(shape) * 4 * 7 * facts.n_embd


def _token_bytes(facts: ModelFacts) -> int:
    """Return the peak of one token's activations in 32 bits, with its id, position and cells."""
    n_used = facts.n_experts_used * facts.n_expert_ff
    n_used_at_once = 4 if facts.adapts_experts else 3
    return 4 * (n_used_at_once * n_used + facts.n_heads * facts.n_key + 3 * facts.n_embd + 10)


def head_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Return the size of logits. On the host llama.cpp starts with n_seq + 1 rows, and grows."""
    return shape.n_rows * facts.n_vocab * 4


def mask_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Return the bytes of two masks, 16 bits per token and cell; devices copy the host's."""
    return 2 * _n_ubatch(shape) * sum(n_cells(facts, shape))


def device_sampling_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Return the bytes of sampler chains beyond the peak. GPU: estimated."""
    in_head = _in_head(facts, shape)
    without = max(_in_layer(facts, shape), in_head)
    return max(0, in_head + 4 * head_bytes(facts, shape) - without)


def f16_cache_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Return a GPU's extra graph memory for a cache that is not f16, if attention is the peak.

    Steps of more than two tokens convert the cache of a layer first. GPU: estimated. Source:
    `ggml_cuda_flash_attn_ext_get_alloc_size` in fattn.cu.
    """
    if shape.cache_type == "f16":
        return 0
    activations = _n_ubatch(shape) * 4 * (2 * facts.n_embd + 3 * facts.n_heads * facts.n_key)
    in_attention = mask_bytes(facts, shape) + activations
    in_attention += round(n_cells(facts, shape)[0] * cell_bytes(facts, "f16"))
    return max(0, in_attention - max(_in_layer(facts, shape), _in_head(facts, shape)))


def expert_copy_bytes(facts: ModelFacts) -> int:
    """Return the room on a GPU for one expert tensor of the host, which large batches bring over.

    There is one at a time (`ggml_backend_sched_split_graph`). GPU: 360 contexts, never more.
    """
    return max(max(layer.expert_bytes) for layer in facts.layers)


def host_map_bytes(facts: ModelFacts, *, is_copy: bool) -> int:
    """Return the GPU memory that maps pinned experts, as if all were on the host.

    GPU: a copy in the driver's buffers takes 2 to 9 MiB per GiB, of which the largest is used;
    locked pages took nothing measurable, and 1 is used.
    """
    return facts.expert_bytes * (9 if is_copy else 1) // 1024


def runtime_bytes(shape: Shape) -> int:
    """Return the GPU memory beyond llama.cpp's buffers: CUDA's context, kernels, scratch memory.

    GPU: 705 to 754 MiB by batch, 58 more for a whole model after ten answers in 15 s: llama.cpp
    keeps recorded graphs for ten seconds after a new memory plan (`Context.plan_memory`).
    """
    return (715 + 64) * _MIB + _n_ubatch(shape) * 14 * 1024


def host_bytes(facts: ModelFacts, shape: Shape, *, has_experts: bool) -> int:
    """Return host memory besides weights and cache if a GPU computes; experts add small batches."""
    inputs = _n_ubatch(shape) * 4 * (facts.n_embd + 10)
    small = min(_n_ubatch(shape), MAX_HOST_BATCH) * _token_bytes(facts) if has_experts else 0
    return mask_bytes(facts, shape) + inputs + small + head_bytes(facts, shape) + 2 * _MIB


def _n_ubatch(shape: Shape) -> int:
    return min(shape.n_batch, pad(shape.n_ctx))


def pad(n: int) -> int:
    return -(-n // 256) * 256
