"""Settings of a config.json that gpt-oss has built in: they must state what llama.cpp computes.

Keys about sizes, attention or experts that are not known here are refused by name, as they could
change the computation.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from convert import rope
from gptoss_local.errors import ConvertError

# The only values with which the model computes what llama.cpp does for gpt-oss.
_FIXED: dict[str, Any] = {
    "attention_bias": True,
    "hidden_act": "silu",
    "is_causal": True,
    "swiglu_alpha": 1.702,
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
    r"|multiplier|logit_scal|residual_scal|embedding_scal|score_func|sparse_step|dense_|mlp_only"
    r"|^n_|^dim$|^hidden_dim$|^num_layers$|^norm_eps$"
)


def unify(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Leave out `experts_per_token`, which OpenAI's own checkpoints state besides Hugging Face's.

    Raises:
        ConvertError: Both state different values.
    """
    unified = dict(fields)
    other = unified.pop("experts_per_token", None)
    stated = unified.get("num_experts_per_tok")
    if other is not None and other != stated:
        raise ConvertError(
            f"{path} states two values of one size: num_experts_per_tok is {stated!r} and "
            f"experts_per_token is {other!r}."
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
