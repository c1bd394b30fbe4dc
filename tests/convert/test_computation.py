"""A checkpoint's settings reach the GGUF however they are spelled, or are refused by name.

What may change the computation and is not known is refused, too: a model that answers nonsense is
worse than none.
"""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import convert_checkpoint
from convert.verify import verify_model
from tests.convert import derived
from tests.convert.gguf_file import read_gguf
from tests.convert.llama_cpu import load_model, logits
from tests.convert.refusing import refuse
from tests.convert.tiny import tiny_config, tiny_tensors, write_json, write_tiny
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
    "both": {"rope_scaling": yarn(type="yarn")},
    "rope_parameters": {"rope_theta": None, "rope_scaling": None, "rope_parameters": V5},
    "rope_parameters, type": {
        "rope_scaling": None,
        "rope_parameters": yarn(rope_type=None, type="yarn"),
    },
    "rope_type null beside type": {"rope_scaling": YARN | {"rope_type": None, "type": "yarn"}},
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
    keys = {key: value for key, (_, value) in read_gguf(tmp_path / "m.gguf").keys.items()}
    assert keys[f"{ROPE}type"] == "yarn"
    assert keys[f"{ROPE}factor"] == 32
    assert keys[f"{ROPE}original_context_length"] == 4096
    assert keys["gpt-oss.rope.freq_base"] == 150000
    assert keys["gpt-oss.embedding_length"] == 64
    assert keys["gpt-oss.expert_used_count"] == 2
    assert keys["gpt-oss.context_length"] == 131072
    assert verify_model(tmp_path / "m.gguf", against=folder).is_proven
    check(keys, config)


@pytest.mark.parametrize("change", [{}, {"rope_theta": 10_000.0}, {"rope_scaling_factor": 8.0}])
def test_honoured_of_openai(tmp_path: Path, change: dict[str, float]) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original")
    fields = msgspec.json.decode((folder / "config.json").read_bytes()) | change
    write_json(folder / "config.json", fields)
    convert_checkpoint(folder, tmp_path / "m.gguf", tokenizer=write_tiny(tmp_path / "words"))
    keys = {key: value for key, (_, value) in read_gguf(tmp_path / "m.gguf").keys.items()}
    check(keys, fields)


def check(keys: dict[str, Any], config: dict[str, Any]) -> None:
    """Compare llama.cpp's reading of the keys with the oracle's reading of config.json."""
    sizes = derived.sizes(config)
    assert {name: keys[f"gpt-oss.{name}"] for name in sizes} == sizes
    angles, magnitude = derived.rotation(config)
    found, found_magnitude = derived.from_keys(keys)
    np.testing.assert_allclose(found, angles, rtol=1e-5)
    assert found_magnitude == pytest.approx(magnitude, rel=1e-5)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no kind": ({"rope_scaling": yarn(rope_type=None)}, "no rope_type"),
    "nothing": ({"rope_scaling": None}, "whether positions are scaled"),
    "another kind": ({"rope_scaling": yarn(rope_type="llama3")}, "'llama3'"),
    "two kinds": ({"rope_scaling": yarn(type="linear")}, "'linear'"),
    "two factors": ({"rope_parameters": V5 | {"factor": 16.0}}, "two values of factor"),
    "scaling for each kind of layer": (
        {"rope_scaling": None, "rope_parameters": {"full_attention": V5}},
        "states full_attention in rope_parameters",
    ),
    "another theta for sliding layers": ({"rope_local_base_freq": 10000}, "rope_local_base_freq"),
    "another name of theta": ({"rotary_emb_base": 150000}, "rotary_emb_base"),
    "an unknown key of scaling": ({"rope_scaling": yarn(short_factor=[1.0])}, "short_factor"),
    "beta_fast": ({"rope_scaling": yarn(beta_fast=16)}, "beta_fast of 16"),
    "beta_slow": ({"rope_scaling": yarn(beta_slow=2)}, "beta_slow of 2"),
    "extrapolation": ({"rope_scaling": yarn(extrapolation_factor=0.5)}, "extrapolation_factor"),
    "attn_factor": ({"rope_scaling": yarn(attn_factor=2.0)}, "attn_factor"),
    "part of a head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "part of a head, other name": ({"rotary_pct": 0.5}, "rotary_pct"),
    "mscale": ({"rope_scaling": yarn(mscale=0.7)}, "states mscale in rope_scaling"),
    "no original context": (
        {"rope_scaling": yarn(original_max_position_embeddings=None)},
        "original_max_position_embeddings",
    ),
    "a factor that is text": ({"rope_scaling": yarn(factor="32")}, "factor"),
    "scaling that is text": ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'"),
    "layers in another order": ({"layer_types": ["full_attention"]}, "layer_types"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act"),
    "another limit": ({"swiglu_limit": 5.0}, "swiglu_limit"),
    "another alpha": ({"swiglu_alpha": 1.5}, "swiglu_alpha"),
    "attention without bias": ({"attention_bias": False}, "attention_bias"),
    "softcap": ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "normed queries": ({"use_qk_norm": True}, "use_qk_norm"),
    "shared experts": ({"n_shared_experts": 1}, "n_shared_experts"),
    "another router": ({"scoring_func": "sigmoid"}, "scoring_func"),
    "scaled routing": ({"routed_scaling_factor": 2.5}, "routed_scaling_factor"),
    "an unknown setting of experts": ({"moe_latent_size": 64}, "moe_latent_size"),
    "two sizes": ({"experts_per_token": 3}, "two values of one size"),
    **{
        f"a size by another name, {key}": ({key: 64}, f"states {key},")
        for key in (
            *("n_embd", "dim", "n_layers", "num_layers", "n_heads", "n_ctx", "n_positions"),
            *("n_inner", "hidden_dim", "norm_eps", "num_experts", "top_k_experts"),
            *("moe_intermediate_size", "prefix_dense_intermediate_size", "first_k_dense_replace"),
            *("mlp_only_layers", "num_shared_experts", "decoder_sparse_step", "score_func"),
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(tmp_path: Path, name: str) -> None:
    changes, match = REFUSED[name]
    config = {k: v for k, v in (tiny_config() | changes).items() if v is not None}
    folder = write_tiny(tmp_path / "tiny", config=config, tensors=tiny_tensors(tiny_config()))
    refuse(folder, match)


FACTORS: dict[str, tuple[dict[str, Any], float]] = {
    "one": ({"attention_factor": 1.0}, 1.0),
    "more": ({"attention_factor": 1.2}, 1.2),
}


@pytest.mark.parametrize("name", FACTORS)
def test_the_factor_of_attention(tmp_path: Path, name: str) -> None:
    """llama.cpp multiplies the key with YaRN's own factor."""
    stated, magnitude = FACTORS[name]
    folder = write_tiny(tmp_path / "tiny", config=tiny_config(rope_scaling=yarn(**stated)))
    plain = write_tiny(tmp_path / "plain")
    for each in (folder, plain):
        convert_checkpoint(each, each.with_suffix(".gguf"))
    own = 1 + 0.1 * math.log(32)
    keys = read_gguf(tmp_path / "tiny.gguf").keys
    assert keys[f"{ROPE}attn_factor"][1] == pytest.approx(magnitude / own)
    assert verify_model(tmp_path / "tiny.gguf", against=folder).is_proven
    report = verify_model(tmp_path / "plain.gguf", against=folder)
    assert [each.where for each in report.findings] == ["gpt-oss.rope.*"]


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
    "gpt-oss.attention.causal": ("BOOL", False),
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


@pytest.mark.parametrize("is_against", [False, True])
def test_verify_finds_a_key_that_hides_the_computation(tmp_path: Path, is_against: bool) -> None:
    folder = write_tiny(tmp_path / "tiny")
    convert_checkpoint(folder, tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    keys = without_sums(file) | {"gpt-oss.attention.causal": ("STRING", "no")}
    write_gguf(tmp_path / "other.gguf", keys, file.tensors)
    report = verify_model(tmp_path / "other.gguf", against=folder if is_against else None)
    assert "gpt-oss.attention.causal" in [each.where for each in report.findings]
