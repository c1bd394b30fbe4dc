"""What a config.json makes the model compute, by code of its own: an oracle of the converter.

Source: modeling_gpt_oss.py and modeling_rope_utils.py in transformers; OpenAI's torch/model.py.
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
    """Return the angle of each pair of dimensions per position, and what multiplies them."""
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
