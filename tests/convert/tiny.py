"""A tiny gpt-oss checkpoint, written by hand so that a test can break any part of it."""

from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, tuple[str, NDArray[Any]]]
"""safetensors dtype and raw values (bf16 as uint16) by name."""


def tiny_config() -> dict[str, Any]:
    """A one-layer gpt-oss, all sizes different so that no axis can be mistaken for another."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "vocab_size": 24,
        "max_position_embeddings": 4096,
        "sliding_window": 128,
        "rms_norm_eps": 1e-05,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
        "layer_types": ["sliding_attention"],
        "swiglu_limit": 7.0,
    }


def tiny_shapes(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """safetensors dtype and shape of every tensor of a one-layer model."""
    n_embd, n_ff = config["hidden_size"], config["intermediate_size"]
    n_vocab, n_experts = config["vocab_size"], config["num_local_experts"]
    n_heads = config["num_attention_heads"]
    n_q, n_kv = n_heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    layer = "model.layers.0"
    bf16 = {
        "model.embed_tokens.weight": (n_vocab, n_embd),
        "model.norm.weight": (n_embd,),
        "lm_head.weight": (n_vocab, n_embd),
        f"{layer}.input_layernorm.weight": (n_embd,),
        f"{layer}.post_attention_layernorm.weight": (n_embd,),
        f"{layer}.self_attn.q_proj.weight": (n_q, n_embd),
        f"{layer}.self_attn.q_proj.bias": (n_q,),
        f"{layer}.self_attn.k_proj.weight": (n_kv, n_embd),
        f"{layer}.self_attn.k_proj.bias": (n_kv,),
        f"{layer}.self_attn.v_proj.weight": (n_kv, n_embd),
        f"{layer}.self_attn.v_proj.bias": (n_kv,),
        f"{layer}.self_attn.o_proj.weight": (n_embd, n_q),
        f"{layer}.self_attn.o_proj.bias": (n_embd,),
        f"{layer}.self_attn.sinks": (n_heads,),
        f"{layer}.mlp.router.weight": (n_experts, n_embd),
        f"{layer}.mlp.router.bias": (n_experts,),
        f"{layer}.mlp.experts.gate_up_proj_bias": (n_experts, 2 * n_ff),
        f"{layer}.mlp.experts.down_proj_bias": (n_experts, n_embd),
    }
    u8 = {
        f"{layer}.mlp.experts.gate_up_proj_blocks": (n_experts, 2 * n_ff, n_embd // 32, 16),
        f"{layer}.mlp.experts.gate_up_proj_scales": (n_experts, 2 * n_ff, n_embd // 32),
        f"{layer}.mlp.experts.down_proj_blocks": (n_experts, n_embd, n_ff // 32, 16),
        f"{layer}.mlp.experts.down_proj_scales": (n_experts, n_embd, n_ff // 32),
    }
    return {n: ("BF16", shape) for n, shape in bf16.items()} | {
        n: ("U8", shape) for n, shape in u8.items()
    }


def tiny_tensors() -> Tensors:
    """Random tensors of `tiny_config`, with finite bf16 values around 1."""
    rng = np.random.default_rng(0)
    tensors: Tensors = {}
    for name, (dtype, shape) in tiny_shapes(tiny_config()).items():
        if dtype == "U8":
            values = rng.integers(110, 140, shape, np.uint8)
        else:
            values = rng.integers(0x3E00, 0x4100, shape, np.uint16)
            values |= rng.integers(0, 2, shape, np.uint16) << np.uint16(15)
        tensors[name] = (dtype, values)
    return tensors


def tiny_tokenizer() -> dict[str, Any]:
    """Ids 0..9 are text, 20..22 added; the rest of the 24 have no token."""
    letters = "abcdefgh"
    return {
        "model": {
            "type": "BPE",
            "vocab": {**{c: i for i, c in enumerate(letters)}, "ab": 8, "abc": 9},
            "merges": [["a", "b"], ["ab", "c"]],
        },
        "added_tokens": [
            {"id": 20, "content": "<|startoftext|>", "special": True},
            {"id": 21, "content": "<|return|>", "special": False},
            {"id": 22, "content": "plain", "special": False},
        ],
    }


def write_safetensors(path: Path, tensors: Tensors) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, values) in tensors.items():
        start, end = end, end + values.nbytes
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [start, end]}
        assert values.nbytes == prod(values.shape) * values.itemsize
    head = msgspec.json.encode(header)
    data = b"".join(values.tobytes() for _, values in tensors.values())
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def write_sharded(folder: Path, tensors: Tensors, n_shards: int) -> None:
    """Spread tensors over shards like a bad dealer, so that partners end up in different files."""
    weight_map: dict[str, str] = {}
    for shard in range(n_shards):
        name = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
        part = dict(list(tensors.items())[shard::n_shards])
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


def write_json(path: Path, content: object) -> None:
    path.write_bytes(msgspec.json.encode(content))


def write_tiny(folder: Path) -> Path:
    """Write a complete tiny checkpoint."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", tiny_config())
    write_json(folder / "tokenizer.json", tiny_tokenizer())
    write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<|startoftext|>", "eos_token": {"content": "<|return|>"}},
    )
    write_json(folder / "generation_config.json", {"pad_token_id": 22, "eos_token_id": [3, 4]})
    write_safetensors(folder / "model.safetensors", tiny_tensors())
    return folder
