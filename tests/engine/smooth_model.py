"""A tiny random model of gpt-oss's architecture on which a missing cell shows.

On a trained and quantised model the order of cells alone moves logits as much as a missing cell at
the far end of the window does: attention sums half-precision products in the order of cells, and
experts and quantised activations make a jump of a rounding error. Here nothing jumps: all experts
are used, weights are float32, and attention looks at all of the window about equally. With a bf16
cache, for which llama.cpp's CPU kernel adds up in float32, rounding stays below `TOLERANCE` (at
most 4e-3 in a thousand conversations), and one cell too few, of `N_WINDOW`, gets far above it.

A GPU rounds more; there the whole half of a window that is missing still shows.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

N_WINDOW = 32
N_VOCAB = 1024
TOLERANCE = 8e-3  # of logits that range over 50
GPU_TOLERANCE = 0.5
GPU_HEAD_DIM = 64  # CUDA's flash attention has no heads of 32

_HIDDEN, _HEADS, _KV_HEADS, _EXPERTS, _LAYERS = 64, 4, 2, 2, 4


def write_smooth_model(path: Path, head_dim: int = 32, n_unlike: int = N_VOCAB) -> None:
    """Write the model; tokens that are the same modulo `n_unlike` always have equal logits."""
    writer = gguf.GGUFWriter(path, "gpt-oss")
    sizes = {
        "block_count": _LAYERS,
        "context_length": 4096,
        "embedding_length": _HIDDEN,
        "feed_forward_length": _HIDDEN,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.sliding_window": N_WINDOW,
        "expert_count": _EXPERTS,
        "expert_used_count": _EXPERTS,
        "expert_feed_forward_length": _HIDDEN,
        "vocab_size": N_VOCAB,
    }
    for key, value in sizes.items():
        writer.add_uint32(f"gpt-oss.{key}", value)
    writer.add_float32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("gpt-oss.rope.freq_base", 150_000.0)
    writer.add_tokenizer_model("none")
    rng = np.random.default_rng(0)

    def random(*shape: int, scale: float) -> "np.ndarray[Any, np.dtype[np.float32]]":
        return rng.standard_normal(shape).astype(np.float32) * np.float32(scale)

    def add(name: str, *shape: int, scale: float) -> None:
        writer.add_tensor(name, random(*shape, scale=scale))

    def add_ones(name: str) -> None:
        writer.add_tensor(name, np.ones(_HIDDEN, np.float32))

    add("token_embd.weight", N_VOCAB, _HIDDEN, scale=1)
    output = random(N_VOCAB, _HIDDEN, scale=1)
    writer.add_tensor("output.weight", np.resize(output[:n_unlike], output.shape))
    add_ones("output_norm.weight")
    n_q, n_kv = _HEADS * head_dim, _KV_HEADS * head_dim
    for layer in range(_LAYERS):
        block = f"blk.{layer}"
        add_ones(f"{block}.attn_norm.weight")
        add_ones(f"{block}.post_attention_norm.weight")
        for name, n_rows, scale in (("q", n_q, 0.02), ("k", n_kv, 0.125), ("v", n_kv, 0.125)):
            add(f"{block}.attn_{name}.weight", n_rows, _HIDDEN, scale=scale)
            add(f"{block}.attn_{name}.bias", n_rows, scale=0.02)
        add(f"{block}.attn_output.weight", _HIDDEN, n_q, scale=1)
        add(f"{block}.attn_output.bias", _HIDDEN, scale=0.1)
        add(f"{block}.attn_sinks.weight", _HEADS, scale=0.1)
        add(f"{block}.ffn_gate_inp.weight", _EXPERTS, _HIDDEN, scale=0.1)
        add(f"{block}.ffn_gate_inp.bias", _EXPERTS, scale=0.1)
        for name in ("gate", "up", "down"):
            add(f"{block}.ffn_{name}_exps.weight", _EXPERTS, _HIDDEN, _HIDDEN, scale=0.125)
            add(f"{block}.ffn_{name}_exps.bias", _EXPERTS, _HIDDEN, scale=0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
