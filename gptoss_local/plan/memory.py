"""What llama.cpp will allocate: a model of it in closed form, from above and within 3 %.

The parts of the graph's buffer were read off llama.cpp's own figures at nano's, 20b's and 120b's
shapes (`tests/plan/test_memory.py` holds them against it); what only a GPU tells is marked so,
measured by `bench/plan_memory.py` on an H200, and held by `tests/plan/test_gpu_memory.py`.
"""

from typing import Literal

import msgspec

from gptoss_local.plan.facts import ModelFacts

CacheType = Literal["f16", "bf16", "q8_0", "q4_0"]
_CACHE_BITS: dict[CacheType, float] = {"f16": 16, "bf16": 16, "q8_0": 8.5, "q4_0": 4.5}
_MIB = 2**20
MAX_HOST_BATCH = 2048
"""Batches of more tokens always bring experts to the GPU."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a context, as in `gptoss_local.llama.ContextParams`.

    Attributes:
        n_outputs: Most rows of logits of a step.
    """

    n_ctx: int
    n_batch: int
    n_seq: int
    n_outputs: int
    cache_type: CacheType = "f16"

    @property
    def n_rows(self) -> int:
        """Rows of logits that llama.cpp reserves: our context has one sequence more."""
        return max(self.n_outputs, self.n_seq + 1)


def n_cells(facts: ModelFacts, shape: Shape) -> tuple[int, int]:
    """Cells of the layers with full attention, and of the sliding ones.

    Source: the constructor of `llama_kv_cache_iswa`; `llama_context` pads n_ctx.
    """
    full = _pad(shape.n_ctx)
    return full, _pad(min(full, facts.n_swa * (shape.n_seq + 1) + _n_ubatch(shape)))


def cache_bytes(facts: ModelFacts, shape: Shape, layer: int) -> int:
    """Keys and values of one layer. Even layers slide (`llama_hparams::set_swa_pattern`)."""
    full, sliding = n_cells(facts, shape)
    n_values = 2 * facts.n_heads_kv * facts.n_key
    return round((full if layer % 2 else sliding) * n_values * _CACHE_BITS[shape.cache_type] / 8)


def all_cache_bytes(facts: ModelFacts, shape: Shape) -> int:
    return sum(cache_bytes(facts, shape, layer) for layer in range(facts.n_layers))


def compute_bytes(facts: ModelFacts, shape: Shape) -> int:
    """The graph's buffer on a device that computes whole layers, from above."""
    gaps = round((2.5 + 0.4 * shape.n_seq) * _MIB)  # between tensors, found by trying
    return round(max(_in_layer(facts, shape), _in_head(facts, shape)) * 1.005) + gaps


def _in_layer(facts: ModelFacts, shape: Shape) -> int:
    """Peak inside the experts of a layer, beside both masks."""
    return _n_ubatch(shape) * _token_bytes(facts) + mask_bytes(facts, shape)


def _in_head(facts: ModelFacts, shape: Shape) -> int:
    return head_bytes(facts, shape) + _n_ubatch(shape) * 4 * 7 * facts.n_embd


def _token_bytes(facts: ModelFacts) -> int:
    """Activations of one token at their peak, in 32 bit, with its id, position and cells."""
    n_used = facts.n_experts_used * facts.n_expert_ff
    return 4 * (3 * n_used + facts.n_heads * facts.n_key + 3 * facts.n_embd + 10)


def head_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Rows of logits of one step."""
    return shape.n_rows * facts.n_vocab * 4


def mask_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Two masks of 16 bit per token and cell; devices have copies of the host's."""
    return 2 * _n_ubatch(shape) * sum(n_cells(facts, shape))


def device_sampling_bytes(facts: ModelFacts, shape: Shape) -> int:
    """What chains of samplers add where the rows of logits are the peak, and not a layer.

    They hold logits, probabilities, their order. GPU: estimated; nothing where a layer is the peak.
    """
    in_head = _in_head(facts, shape)
    beside = max(_in_layer(facts, shape), in_head)
    return max(0, in_head + 4 * head_bytes(facts, shape) - beside)


def expert_copy_bytes(facts: ModelFacts) -> int:
    """Room on a GPU for one expert tensor of the host, which large batches bring over.

    Every such tensor begins a split of the graph, so one is there at a time
    (`ggml_backend_sched_split_graph`). GPU: 360 contexts, never more, often less.
    """
    return max(max(layer.expert_bytes) for layer in facts.layers)


def host_map_bytes(facts: ModelFacts, *, is_copy: bool) -> int:
    """What a GPU holds to reach pinned experts, as if all were on the host.

    GPU: a copy in buffers of the driver takes 4 MiB per GiB of 20b's, 9 of 120b's; 2 on two
    machines of another day; the most counts. Locked pages of the file took nothing that could be
    seen, on two machines: 1 counts.
    """
    return facts.expert_bytes * (9 if is_copy else 1) // 1024


def runtime_bytes(shape: Shape) -> int:
    """What a GPU holds beyond llama.cpp's buffers: CUDA's context, kernels, scratch memory.

    GPU: on an H200 705 to 754 MiB by batch, 527 of them a bare context. Where a GPU has the whole
    model another 58 behind ten answers in 15 s: the graphs that it has recorded are of no use
    behind a new plan of memory (`Context.reserve`), and llama.cpp keeps them for ten seconds.
    """
    return (715 + 64) * _MIB + _n_ubatch(shape) * 14 * 1024


def host_bytes(facts: ModelFacts, shape: Shape, *, has_experts: bool) -> int:
    """Host memory beside weights and cache where a GPU computes: inputs, masks, rows of logits.

    With experts of its own, the host computes batches that are too small to be worth a transfer.
    """
    inputs = _n_ubatch(shape) * 4 * (facts.n_embd + 10)
    small = min(_n_ubatch(shape), MAX_HOST_BATCH) * _token_bytes(facts) if has_experts else 0
    return mask_bytes(facts, shape) + inputs + small + output_bytes(facts, shape) + 2 * _MIB


def output_bytes(facts: ModelFacts, shape: Shape) -> int:
    """The host's rows of logits, of which llama.cpp allocates n_seq + 1 first and more on use."""
    return head_bytes(facts, shape)


def _n_ubatch(shape: Shape) -> int:
    return min(shape.n_batch, _pad(shape.n_ctx))


def _pad(n: int) -> int:
    return -(-n // 256) * 256
