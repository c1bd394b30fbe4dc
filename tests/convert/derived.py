"""Oracles for the computation stated by a config.json, and by the keys of a GGUF.

Source: modeling_gpt_oss.py and modeling_rope_utils.py in transformers; OpenAI's torch/model.py;
llama-model.cpp, llama-context.cpp, openai-moe.cpp and `rope_yarn` in llama.cpp.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def sizes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers besides the rotation, under the names of the GGUF's keys."""
    is_original = "architectures" not in fields
    n_context = fields.get("initial_context_length")
    return {
        "block_count": fields["num_hidden_layers"],
        "embedding_length": fields["hidden_size"],
        "expert_feed_forward_length": fields["intermediate_size"],
        "attention.head_count": fields["num_attention_heads"],
        "attention.head_count_kv": fields["num_key_value_heads"],
        "attention.key_length": fields["head_dim"],
        "expert_count": fields["num_experts" if is_original else "num_local_experts"],
        "expert_used_count": fields["experts_per_token" if is_original else "num_experts_per_tok"],
        "attention.sliding_window": fields["sliding_window"],
        "context_length": int(n_context * fields["rope_scaling_factor"])
        if is_original
        else fields["max_position_embeddings"],
    }


def rotation(fields: Mapping[str, Any]) -> tuple[np.ndarray[Any, Any], float]:
    """Return the angle of each pair of dimensions per position, and the magnitude."""
    if "architectures" not in fields:
        scaling: Mapping[str, Any] = {
            "factor": fields["rope_scaling_factor"],
            "original_max_position_embeddings": fields["initial_context_length"],
            "beta_fast": fields["rope_ntk_beta"],
            "beta_slow": fields["rope_ntk_alpha"],
        }
    else:
        scaling = (fields.get("rope_parameters") or {}) | (fields.get("rope_scaling") or {})
    size, factor = fields["head_dim"], scaling["factor"]
    theta = scaling.get("rope_theta") or fields["rope_theta"]
    n_context = scaling.get("original_max_position_embeddings")
    n_context = n_context or fields["original_max_position_embeddings"]
    own = 0.1 * math.log(factor) + 1

    def dimension(turns: float) -> float:
        return size * math.log(n_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(0, math.floor(dimension(scaling.get("beta_fast") or 32)))
    high = min(size - 1, math.ceil(dimension(scaling.get("beta_slow") or 1)))
    angles = []
    for pair in range(size // 2):
        plain = theta ** (-2 * pair / size)
        kept = 1 - min(max((pair - low) / max(0.001, high - low), 0), 1)
        angles.append(plain * kept + plain / factor * (1 - kept))
    return np.array(angles), float(scaling.get("attention_factor") or own)


def from_keys(metadata: Mapping[str, Any]) -> tuple[np.ndarray[Any, Any], float]:
    """Return llama.cpp's reading of a GGUF's keys, in the form of `rotation`."""

    def key(name: str, default: Any = None) -> Any:
        return metadata.get(f"gpt-oss.{name}", default)

    size, theta = key("attention.key_length"), key("rope.freq_base", 10000.0)
    assert key("rope.scaling.type") == "yarn"
    factor = float(key("rope.scaling.factor"))
    original = key("rope.scaling.original_context_length", key("context_length"))
    magnitude = key("rope.scaling.attn_factor", 1.0) * (1.0 + 0.1 * math.log(factor))

    def dimension(turns: float) -> float:
        return float(size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta)))

    # beta_fast and beta_slow are not read for gpt-oss; the extrapolation factor is 1.
    low, high = max(0, math.floor(dimension(32))), min(size - 1, math.ceil(dimension(1)))
    plain = float(theta) ** -(np.arange(0, size, 2) / size)
    kept = 1 - np.clip((np.arange(size // 2) - low) / max(0.001, high - low), 0, 1)
    return plain / factor * (1 - kept) + plain * kept, magnitude
