"""A checkpoint's settings reach the GGUF however they are spelled, or are refused by name.

An unknown setting that may change the computation is refused, too: a model that answers nonsense is
worse than none.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert import convert_checkpoint
from convert.verify import verify_model
from tests.convert.gguf_file import read_gguf
from tests.convert.llama_cpu import load_model, logits
from tests.convert.tiny import Layout, refuse, tiny_config, tiny_tensors, write_tiny
from tests.convert.write_gguf import without_sums, write_gguf

YARN = tiny_config()["rope_scaling"]
ROPE = "gpt-oss.rope.scaling."


def yarn(**changes: Any) -> dict[str, Any]:
    """Return YaRN as published, with changed keys; None removes one."""
    return {key: value for key, value in (YARN | changes).items() if value is not None}


V5 = yarn(rope_theta=150000)
HONOURED: dict[str, dict[str, Any]] = {
    "as published": {},
    "type for rope_type": {"rope_scaling": yarn(rope_type=None, type="yarn")},
    "rope_parameters": {"rope_theta": None, "rope_scaling": None, "rope_parameters": V5},
    "rope_parameters, type": {
        "rope_scaling": None,
        "rope_parameters": yarn(rope_type=None, type="yarn"),
    },
    "in both places": {"rope_parameters": V5},
    "original at the top": {
        "rope_scaling": yarn(original_max_position_embeddings=None),
        "original_max_position_embeddings": 4096,
    },
    "no betas": {"rope_scaling": yarn(beta_fast=None, beta_slow=None, truncate=None)},
    "neutral factors": {
        "rope_scaling": yarn(extrapolation_factor=1.0, partial_rotary_factor=1.0, attn_factor=1),
        "partial_rotary_factor": 1.0,
    },
    "as published by OpenAI": {
        "attention_bias": True,
        "attention_dropout": 0.0,
        "experts_per_token": 2,
        "hidden_act": "silu",
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "output_router_logits": False,
        "pad_token_id": 3,
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
            "quant_method": "mxfp4",
        },
        "router_aux_loss_coef": 0.9,
        "tie_word_embeddings": False,
        "use_cache": True,
    },
    "as Unsloth saves": {"dtype": "bfloat16", "unsloth_version": "2025.11.1", "_name": "x"},
}


@pytest.mark.parametrize("name", HONOURED)
def test_honoured(tmp_path: Path, name: str) -> None:
    """Keys and tensors equal the published checkpoint's."""
    config = {k: v for k, v in (tiny_config() | HONOURED[name]).items() if v is not None}
    folder = write_tiny(tmp_path / "tiny", config=config, tensors=tiny_tensors(tiny_config()))
    convert_checkpoint(folder, tmp_path / "m.gguf")
    convert_checkpoint(write_tiny(tmp_path / "published"), tmp_path / "published.gguf")
    keys, published = (read_gguf(tmp_path / f"{each}.gguf").keys for each in ("m", "published"))
    for key, value in published.items():
        if key.startswith("gpt-oss.") and "yarn_beta" not in key:
            assert keys[key] == value
    assert verify_model(tmp_path / "m.gguf", against=folder).is_proven


@pytest.mark.parametrize("layout", ["hugging_face", "original"])
def test_sizes_and_rotation(tmp_path: Path, layout: Layout) -> None:
    """As llama.cpp reads them: it has YaRN's betas and magnitude by itself."""
    scaling = yarn(factor=8.0, original_max_position_embeddings=2048)
    config = tiny_config(
        rope_theta=10_000.0, rope_scaling=scaling, max_position_embeddings=8 * 2048
    )
    folder = write_tiny(tmp_path / "tiny", config=config, layout=layout)
    convert_checkpoint(folder, tmp_path / "m.gguf", tokenizer=write_tiny(tmp_path / "words"))
    keys = {key: value for key, (_, value) in read_gguf(tmp_path / "m.gguf").keys.items()}
    wanted = {
        "block_count": 1,
        "embedding_length": 64,
        "expert_feed_forward_length": 32,
        "attention.head_count": 3,
        "attention.head_count_kv": 1,
        "attention.key_length": 32,
        "attention.sliding_window": 128,
        "expert_count": 5,
        "expert_used_count": 2,
        "context_length": 16_384,
        "rope.freq_base": 10_000,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8,
        "rope.scaling.original_context_length": 2048,
    }
    assert {name: keys[f"gpt-oss.{name}"] for name in wanted} == wanted


UNFIT = "config.json does not fit gpt-oss: .*"
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"rope_scaling": scaling}, match) for scaling, match in (
        (None, "whether positions are scaled"),
        ("yarn", "rope_scaling is 'yarn'"),
        ({"rope_type": "yarn"}, "lacks original_max_position_embeddings"),
        (yarn(rope_type=None), "no rope_type"),
        (yarn(rope_type="llama3"), "rope_type 'llama3', which is not known"),
        (yarn(type="linear"), "'linear'"),
        (yarn(short_factor=[1.0]), "short_factor"),
        (yarn(beta_fast=16), "beta_fast of 16"),
        (yarn(beta_slow=2), "beta_slow of 2"),
        (yarn(extrapolation_factor=0.5), "extrapolation_factor"),
        (yarn(attn_factor=2.0), "attn_factor"),
        (yarn(mscale=0.7), "states mscale in rope_scaling"),
        (yarn(original_max_position_embeddings=None), "original_max_position_embeddings"),
        (yarn(factor="32"), "factor"),
    )),
    ({"rope_parameters": V5 | {"factor": 16.0}}, "two values of factor"),
    (
        {"rope_scaling": None, "rope_parameters": {"full_attention": V5}},
        "states full_attention in rope_parameters",
    ),
    *(({key: value}, key) for key, value in (
        ("rope_local_base_freq", 10000),
        ("rotary_emb_base", 150000),
        ("partial_rotary_factor", 0.5),
        ("rotary_pct", 0.5),
        ("hidden_act", "gelu"),
        ("swiglu_limit", 5.0),
        ("swiglu_alpha", 1.5),
        ("attention_bias", False),
        ("attn_logit_softcapping", 50.0),
        ("use_qk_norm", True),
        ("n_shared_experts", 1),
        ("scoring_func", "sigmoid"),
        ("routed_scaling_factor", 2.5),
        ("moe_latent_size", 64),
    )),
    ({"layer_types": ["full_attention"]}, "layer_types in a way that llama.cpp cannot run"),
    ({"experts_per_token": 3}, "two values of one size"),
    *(({key: value}, f"{UNFIT}{key}") for key, value in (
        ("num_hidden_layers", None),
        ("num_hidden_layers", True),
        ("num_hidden_layers", 10**12),
        ("vocab_size", 10**12),
        ("head_dim", "64"),
        ("hidden_size", 0),
        ("hidden_size", 2**62),
        ("max_position_embeddings", 2**64),
        ("rms_norm_eps", 0),
        ("rope_theta", 1e300),
    )),
    ({"architectures": ["LlamaForCausalLM"]}, "not a gpt-oss checkpoint: .*LlamaForCausalLM"),
    ({"architectures": ["GptOssForCausalLM", "X"]}, "states 2 architectures: .*X"),
    ({"architectures": None}, "not a gpt-oss checkpoint"),
    ({"num_hidden_layers": 1000, "layer_types": None}, "lacks .* model.layers.1.* and [0-9]+ more"),
    ({"intermediate_size": 1 << 24}, r"is (U8|BF16) .* where"),
    ({"intermediate_size": 48}, "intermediate_size is 48 .* not a multiple of 32"),
    ({"num_local_experts": 6}, r"is BF16 \[5.*\] where .* BF16 \[6"),
    ({"num_experts_per_tok": 6}, "more experts per token than there are experts"),
    ({"num_key_value_heads": 2}, "3 attention heads, not a multiple of the 2 key-value heads"),
    (
        {"head_dim": 33, "num_attention_heads": 32, "num_key_value_heads": 32},
        "head_dim of 33; it must be even",
    ),
    *(({key: 64}, f"states {key},") for key in (  # a size by another name
        *("n_embd", "dim", "n_layers", "num_layers", "n_heads", "n_ctx", "n_positions"),
        *("n_inner", "hidden_dim", "norm_eps", "num_experts", "top_k_experts"),
        *("moe_intermediate_size", "prefix_dense_intermediate_size", "first_k_dense_replace"),
        *("auto_map", "mlp_only_layers", "num_shared_experts", "decoder_sparse_step", "score_func"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "match"), REFUSED)
def test_refused_by_name(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    config = {k: v for k, v in (tiny_config() | changes).items() if v is not None}
    folder = write_tiny(tmp_path / "tiny", config=config, tensors=tiny_tensors(tiny_config()))
    refuse(folder, match)


@pytest.mark.parametrize("magnitude", [1.0, 1.2])
def test_the_factor_of_attention(tmp_path: Path, magnitude: float) -> None:
    """llama.cpp multiplies the key with YaRN's own factor."""
    stated = yarn(attention_factor=magnitude)
    folder = write_tiny(tmp_path / "tiny", config=tiny_config(rope_scaling=stated))
    plain = write_tiny(tmp_path / "plain")
    for each in (folder, plain):
        convert_checkpoint(each, each.with_suffix(".gguf"))
    own = 1 + 0.1 * math.log(32)
    keys = read_gguf(tmp_path / "tiny.gguf").keys
    assert keys[f"{ROPE}attn_factor"][1] == pytest.approx(magnitude / own)
    assert verify_model(tmp_path / "tiny.gguf", against=folder).is_proven
    report = verify_model(tmp_path / "plain.gguf", against=folder)
    assert [each.where for each in report.findings] == ["gpt-oss.rope.*"]


@pytest.mark.nightly
def test_the_factor_of_attention_changes_the_logits(tmp_path: Path, nano_gguf: Path) -> None:
    file = read_gguf(nano_gguf)
    key: dict[str, tuple[str, Any]] = {f"{ROPE}attn_factor": ("FLOAT32", 0.8)}
    write_gguf(tmp_path / "other.gguf", without_sums(file) | key, file.tensors)
    found = []
    for path in (nano_gguf, tmp_path / "other.gguf"):
        with load_model(path) as model:
            found += logits(model, [list(range(1000, 1064))])
    assert np.abs(found[0] - found[1]).max() > 0.01


OTHER_KEYS: dict[str, tuple[str, Any] | None] = {
    f"{ROPE}type": None,
    f"{ROPE}factor": ("FLOAT32", 16.0),
    f"{ROPE}original_context_length": ("UINT32", 8192),
    f"{ROPE}attn_factor": ("FLOAT32", 1.1),
    "gpt-oss.rope.freq_base": ("FLOAT32", 10000.0),
    "gpt-oss.attention.sliding_window": ("UINT32", 64),
    "gpt-oss.attention.layer_norm_rms_epsilon": ("FLOAT32", 1e-6),
    "gpt-oss.expert_used_count": ("UINT32", 3),
    "gpt-oss.context_length": ("UINT32", 4096),
    "gpt-oss.rope.freq_base_swa": ("FLOAT32", 10000.0),
    "gpt-oss.attention.sliding_window_pattern": ("UINT32", 4),
    "gpt-oss.attention.causal": ("STRING", "no"),
    "gpt-oss.rope.dimension_count": ("UINT32", 16),
}


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_verify_finds_another_computation(tmp_path: Path, key: str) -> None:
    """Also of a file in which every byte of every tensor is right."""
    folder = write_tiny(tmp_path / "tiny")
    convert_checkpoint(folder, tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    keys = without_sums(file)
    if (value := OTHER_KEYS[key]) is None:
        keys = {name: each for name, each in keys.items() if not name.startswith(ROPE)}
    else:
        keys[key] = value
    write_gguf(tmp_path / "other.gguf", keys, file.tensors)
    report = verify_model(tmp_path / "other.gguf", against=folder)
    assert not report.is_proven
    assert {tensor.match for tensor in report.tensors} == {"equal"}
    if key == "gpt-oss.attention.causal":  # a key that may hide the computation
        alone = verify_model(tmp_path / "other.gguf")
        assert key in [each.where for each in alone.findings]
