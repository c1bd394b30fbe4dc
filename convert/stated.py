"""Settings of a config.json that gpt-oss has built in: they must state what llama.cpp computes.

Keys with several spellings are brought to Hugging Face's; keys about attention or experts that are
not known here are refused by name, as they could change the computation.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from convert import rope
from gptoss_local.errors import ConvertError

# Hugging Face's name, and others that llama.cpp's converter or older tools read.
_SPELLINGS = {
    "num_hidden_layers": ("n_layers", "n_layer", "num_layers"),
    "hidden_size": ("n_embd", "dim"),
    "intermediate_size": (
        *("n_inner", "hidden_dim", "prefix_dense_intermediate_size", "dense_intermediate_size"),
        "moe_intermediate_size",
    ),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("n_kv_heads",),
    "num_local_experts": ("num_experts", "n_routed_experts"),
    "num_experts_per_tok": ("experts_per_token", "num_experts_per_token", "top_k_experts"),
    "max_position_embeddings": ("n_ctx", "n_positions"),
    "rms_norm_eps": ("norm_eps",),
}

# The only values with which the model computes what llama.cpp does for gpt-oss.
_FIXED: dict[str, Any] = {
    "attention_bias": True,
    "decoder_sparse_step": 1,
    "expert_selection_fn": "softmax",
    "first_k_dense_replace": 0,
    "hidden_act": "silu",
    "hidden_activation": "silu",
    "is_causal": True,
    "mlp_only_layers": [],
    "moe_layer_freq": 1,
    "moe_router_activation": "softmax",
    "moe_router_activation_func": "softmax",
    "n_group": 1,
    "n_shared_experts": 0,
    "norm_topk_prob": True,
    "num_shared_experts": 0,
    "routed_scaling_factor": 1,
    "score_func": "softmax",
    "score_function": "softmax",
    "scoring_func": "softmax",
    "sliding_window_pattern": 2,
    "swiglu_alpha": 1.702,
    "topk_group": 1,
    "use_sliding_window": True,
}

# About training, output or how a program runs the model, or checked as part of `ModelConfig`.
_NO_EFFECT = {
    *("add_cross_attention", "attention_dropout", "attn_implementation", "attn_pdrop"),
    *("cross_attention_hidden_size", "experts_implementation", "head_dim", "layer_types"),
    *("num_attention_heads", "num_key_value_heads", "num_experts_per_tok", "num_local_experts"),
    *("output_attentions", "output_router_logits", "prune_heads", "pruned_heads"),
    *("router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "sliding_window"),
    *("swiglu_limit", "top_k"),
}
_ORIGINAL = {
    *("rope_scaling_factor", "rope_ntk_alpha", "rope_ntk_beta", "num_experts"),
    "experts_per_token",
}
_SUSPICIOUS = re.compile(
    r"rope|rotary|theta|yarn|mscale|attn|attention|head|qk|window|sliding|layer_type|sink|softcap"
    r"|expert|moe|router|routed|routing|gating|scoring|top_?k|n_group|swiglu|glu|hidden_act"
    r"|multiplier|logit_scal|residual_scal|embedding_scal"
)


def unify(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Bring sizes to Hugging Face's names.

    Raises:
        ConvertError: Two names of one size state different values.
    """
    unified = dict(fields)
    for name, others in _SPELLINGS.items():
        for other in others:
            value = unified.pop(other, None)
            if value is None:
                continue
            if unified.get(name) is None:
                unified[name] = value
            if unified[name] != value:
                raise ConvertError(
                    f"{path} states two values of one size: {name} is {unified[name]!r} and "
                    f"{other} is {value!r}."
                )
    return unified


def check_stated(fields: Mapping[str, Any], path: Path, *, is_original: bool = False) -> None:
    """Check every key that could change the computation and is not a number of `ModelConfig`.

    Args:
        fields: Of config.json, after `unify`.
        path: Of config.json.
        is_original: Whether it is of OpenAI's layout.

    Raises:
        ConvertError: A key states what llama.cpp does not compute, or is not known.
    """
    for key, value in fields.items():
        if value is None or key.startswith("_"):
            continue
        if key in _FIXED:
            _check_fixed(key, value, path)
        elif not _is_known(key, _ORIGINAL if is_original else ()) and _SUSPICIOUS.search(key):
            raise ConvertError(
                f"{path} states {key}, which is not a known setting of gpt-oss.",
                hint="The model might compute something else in llama.cpp. If the key has no "
                "effect, take it out of config.json.",
            )


def _check_fixed(key: str, value: Any, path: Path) -> None:
    right = _FIXED[key]
    if value != right or isinstance(value, bool) != isinstance(right, bool):
        raise ConvertError(
            f"{path} states a {key} of {value!a:.80}; llama.cpp runs gpt-oss only with {right!r}."
        )


def _is_known(key: str, more: Collection[str]) -> bool:
    return key in _NO_EFFECT or key in rope.TOP_LEVEL_KEYS or key in more
