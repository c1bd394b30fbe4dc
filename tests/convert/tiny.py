"""Generates gpt-oss checkpoints: both layouts, any shape, MXFP4 or bf16 experts, one file or many.

By default a tiny one, small enough that a test can break any part of it:

    write_tiny(folder)
    write_tiny(folder, config=tiny_config(num_hidden_layers=3), experts="bf16", n_shards=2)
    write_tiny(folder, layout="original")        # the same weights in OpenAI's layout

Checkpoints are made of plain dicts and arrays, independently of the package that is tested.
"""

import re
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from convert import convert_checkpoint
from gptoss_local.base.errors import ConvertError

Tensors = dict[str, tuple[str, NDArray[Any]]]
"""safetensors dtype and raw values (bf16 as uint16) by name."""

Experts = Literal["mxfp4", "bf16"]
Layout = Literal["hugging_face", "original"]

EXPERT_MATRIX = re.compile(r".*\.experts\.(gate_up|down)_proj")
ORIGINAL_NAMES = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.weight": "norm.scale",
    "lm_head.weight": "unembedding.weight",
    "input_layernorm.weight": "attn.norm.scale",
    "post_attention_layernorm.weight": "mlp.norm.scale",
    "self_attn.o_proj": "attn.out",
    "self_attn.sinks": "attn.sinks",
    "mlp.router": "mlp.gate",
    "mlp.experts.gate_up_proj": "mlp.mlp1_weight",
    "mlp.experts.down_proj": "mlp.mlp2_weight",
}


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A gpt-oss of one layer, all sizes different so that no axis can be mistaken for another."""
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "vocab_size": 24,
        "max_position_embeddings": 131072,
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
        "swiglu_limit": 7.0,
    } | changes
    n_layers = config["num_hidden_layers"]
    turns = ["sliding_attention", "full_attention"] * n_layers
    return {"layer_types": turns[:n_layers]} | config


def original_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return `original/config.json` of the same model."""
    yarn = config.get("rope_scaling") or config["rope_parameters"]
    same = ("num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size", "head_dim")
    same += ("num_attention_heads", "num_key_value_heads", "sliding_window", "swiglu_limit")
    return {key: config[key] for key in same} | {
        "num_experts": config["num_local_experts"],
        "experts_per_token": config["num_experts_per_tok"],
        "initial_context_length": yarn["original_max_position_embeddings"],
        "rope_theta": config.get("rope_theta", yarn.get("rope_theta")),
        "rope_scaling_factor": yarn["factor"],
        "rope_ntk_alpha": yarn["beta_slow"],
        "rope_ntk_beta": yarn["beta_fast"],
    }


def tiny_shapes(
    config: dict[str, Any], experts: Experts = "mxfp4"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """safetensors dtype and shape of every tensor, in Hugging Face's layout."""
    n_embd, n_vocab = config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("BF16", (n_vocab, n_embd)),
        "model.norm.weight": ("BF16", (n_embd,)),
        "lm_head.weight": ("BF16", (n_vocab, n_embd)),
    }
    for layer in range(config["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        shapes |= {f"{here}.{name}": shape for name, shape in _layer_shapes(config, experts)}
    return shapes


def _layer_shapes(
    config: dict[str, Any], experts: Experts
) -> list[tuple[str, tuple[str, tuple[int, ...]]]]:
    n_embd, n_ff = config["hidden_size"], config["intermediate_size"]
    n_experts, n_heads = config["num_local_experts"], config["num_attention_heads"]
    n_q, n_kv = n_heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    bf16: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (n_embd,),
        "post_attention_layernorm.weight": (n_embd,),
        "self_attn.q_proj.weight": (n_q, n_embd),
        "self_attn.q_proj.bias": (n_q,),
        "self_attn.k_proj.weight": (n_kv, n_embd),
        "self_attn.k_proj.bias": (n_kv,),
        "self_attn.v_proj.weight": (n_kv, n_embd),
        "self_attn.v_proj.bias": (n_kv,),
        "self_attn.o_proj.weight": (n_embd, n_q),
        "self_attn.o_proj.bias": (n_embd,),
        "self_attn.sinks": (n_heads,),
        "mlp.router.weight": (n_experts, n_embd),
        "mlp.router.bias": (n_experts,),
        "mlp.experts.gate_up_proj_bias": (n_experts, 2 * n_ff),
        "mlp.experts.down_proj_bias": (n_experts, n_embd),
    }
    shapes = [(name, ("BF16", shape)) for name, shape in bf16.items()]
    for name, n_in, n_out in (("gate_up_proj", n_embd, 2 * n_ff), ("down_proj", n_ff, n_embd)):
        if experts == "bf16":  # transformers keeps them transposed
            shapes.append((f"mlp.experts.{name}", ("BF16", (n_experts, n_in, n_out))))
            continue
        grid = (n_experts, n_out, n_in // 32)
        shapes.append((f"mlp.experts.{name}_blocks", ("U8", (*grid, 16))))
        shapes.append((f"mlp.experts.{name}_scales", ("U8", grid)))
    return shapes


def tiny_tensors(
    config: dict[str, Any] | None = None, *, experts: Experts = "mxfp4", seed: int = 0
) -> Tensors:
    """Random tensors, with finite bf16 values around 1."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, (dtype, shape) in tiny_shapes(config or tiny_config(), experts).items():
        if dtype == "U8":
            n_values = 256 if name.endswith("_blocks") else 20
            values = rng.integers(0, n_values, shape, np.uint8)
            values += np.uint8(0 if name.endswith("_blocks") else 115)
        else:
            values = rng.integers(0x3E00, 0x4100, shape, np.uint16)
            values |= rng.integers(0, 2, shape, np.uint16) << np.uint16(15)
        tensors[name] = (dtype, values)
    return tensors


def to_original(tensors: Tensors) -> Tensors:
    """The same weights in OpenAI's layout: other names, q, k and v in one, nothing transposed."""
    renamed: Tensors = {}
    for name, (dtype, values) in tensors.items():
        if "self_attn.q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{part}_proj")][1] for part in "qkv"]
            values = np.concatenate(parts)
            name = name.replace("self_attn.q_proj", "attn.qkv")
        elif "_proj" in name and re.search(r"self_attn\.[kv]", name):
            continue
        elif EXPERT_MATRIX.fullmatch(name):
            values = np.ascontiguousarray(values.swapaxes(1, 2))
        for theirs, openai in ORIGINAL_NAMES.items():
            name = name.replace(theirs, openai)
        name = name.replace("weight_bias", "bias").replace("model.layers", "block")
        renamed[re.sub(r"weight_(blocks|scales)", r"weight.\1", name)] = (dtype, values)
    return renamed


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
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, values in tensors.values():
            file.write(np.ascontiguousarray(values).data)


def write_sharded(
    folder: Path, tensors: Tensors, n_shards: int, *, pattern: str = "model-{:05d}-of-{:05d}"
) -> None:
    """Spread tensors over shards like a bad dealer, so that partners end up in different files."""
    weight_map: dict[str, str] = {}
    for shard in range(n_shards):
        name = f"{pattern.format(shard + 1, n_shards)}.safetensors"
        part = dict(list(tensors.items())[shard::n_shards])
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


def write_json(path: Path, content: object) -> None:
    path.write_bytes(msgspec.json.encode(content))


def write_tokenizer(folder: Path) -> None:
    """Write the tokenizer files of a checkpoint with at least 24 tokens."""
    write_json(folder / "tokenizer.json", tiny_tokenizer())
    write_json(
        folder / "tokenizer_config.json",
        {"bos_token": "<|startoftext|>", "eos_token": {"content": "<|return|>"}},
    )
    write_json(folder / "generation_config.json", {"pad_token_id": 22, "eos_token_id": [3, 4]})


def write_tiny(
    folder: Path,
    *,
    config: dict[str, Any] | None = None,
    tensors: Tensors | None = None,
    layout: Layout = "hugging_face",
    experts: Experts = "mxfp4",
    n_shards: int = 1,
) -> Path:
    """Write a checkpoint; one in OpenAI's layout has no tokenizer, as those do not.

    Args:
        folder: Made, if missing, and returned.
        config: In Hugging Face's words, also for the original layout; `tiny_config()` by default.
        tensors: In Hugging Face's layout; random ones by default.
        n_shards: Above 1, the weights are spread over so many files with an index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = config or tiny_config()
    tensors = tensors or tiny_tensors(config, experts=experts)
    pattern = "model-{:05d}-of-{:05d}"
    if layout == "original":
        tensors, config = to_original(tensors), original_config(config)
        pattern = "model--{:05d}-of-{:05d}"
    else:
        write_tokenizer(folder)
    write_json(folder / "config.json", config)
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
    else:
        write_sharded(folder, tensors, n_shards, pattern=pattern)
    return folder


def refuse(folder: Path, match: str, **options: Any) -> str:
    """Convert over an existing file, which must be left alone; return the hint of the refusal."""
    target_dir = folder.parent / "out"
    target_dir.mkdir()
    target = target_dir / "model.gguf"
    target.write_bytes(b"GGUF, the old one")
    with pytest.raises(ConvertError, match=match) as caught:
        convert_checkpoint(folder, target, **options)
    assert target.read_bytes() == b"GGUF, the old one"
    assert list(target_dir.iterdir()) == [target]
    return caught.value.hint
