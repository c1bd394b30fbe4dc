"""Derives what a model computes twice: from a checkpoint's config and from a GGUF's keys.

One side follows transformers' own model, the other llama.cpp's loader, and the rotations of every
dimension are compared as numbers. A key that was dropped, renamed or written wrong shows here.
No file is opened here.

Source: modeling_gpt_oss.py and modeling_rope_utils.py in transformers; llama-model.cpp,
llama-context.cpp, openai-moe.cpp and `rope_yarn` in llama.cpp.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convert.config import ModelConfig
from convert.rope import yarn_scale

_TOLERANCE = 1e-5  # floats of a GGUF have 32 bits
_PREFIX = "gpt-oss."
_MAX_THETA = 1e30

_FIELDS = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "expert width": "intermediate_size",
    "heads": "num_attention_heads",
    "key-value heads": "num_key_value_heads",
    "head size": "head_dim",
    "experts": "num_local_experts",
    "experts per token": "num_experts_per_tok",
    "sliding window": "sliding_window",
    "epsilon": "rms_norm_eps",
    "context": "max_position_embeddings",
}

_GGUF_KEYS = {
    "layers": "block_count",
    "width": "embedding_length",
    "expert width": "expert_feed_forward_length",
    "heads": "attention.head_count",
    "key-value heads": "attention.head_count_kv",
    "head size": "attention.key_length",
    "experts": "expert_count",
    "experts per token": "expert_used_count",
    "sliding window": "attention.sliding_window",
    "epsilon": "attention.layer_norm_rms_epsilon",
    "context": "context_length",
}
_BUILT_IN = {
    "causal attention": True,
    "groups of experts": 1,
    "period of sliding layers": 2,
    "value size": 1.0,
    "rotated part of a head": 1.0,
    "heads of sliding layers": 1.0,
    "rotation base of sliding layers": 1.0,
}
"""The constants of every gpt-oss; the last four are fractions of the value for all layers."""

Numbers = dict[str, Any]
"""Numbers by name, and under `angles` the rotation per position of each pair of dimensions."""


def from_config(config: ModelConfig) -> Numbers:
    """Derive what transformers computes, or OpenAI's code from a config of its own."""
    found = _BUILT_IN | {name: getattr(config, field) for name, field in _FIELDS.items()}
    rope = config.rope
    if rope.rope_type != "yarn":
        return found | _rotations(config.head_dim, rope.rope_theta)
    return found | _rotations(
        config.head_dim,
        rope.rope_theta,
        rope.factor,
        rope.original_max_position_embeddings or 0,
        rope.beta_fast or 32,
        rope.beta_slow or 1,
        rope.attention_factor or yarn_scale(rope.factor),
    )


def from_keys(metadata: Mapping[str, Any]) -> Numbers:
    """Derive what llama.cpp computes from the keys of a GGUF.

    Raises:
        KeyError, TypeError, ValueError: A key is missing, or is not a number.
    """

    def key(name: str, default: Any = None) -> Any:
        value = metadata.get(_PREFIX + name, default)
        if value is None:
            raise KeyError(_PREFIX + name)
        if isinstance(value, str) and name != "rope.scaling.type":
            raise TypeError(_PREFIX + name)
        return value

    heads = key("attention.head_count")
    optional = {"key-value heads": heads}
    found = {name: key(inner, optional.get(name)) for name, inner in _GGUF_KEYS.items()}
    size, theta = found["head size"], key("rope.freq_base", 10000.0)
    found |= {
        "causal attention": key("attention.causal", True),
        "groups of experts": key("expert_group_count", 0) or 1,
        "period of sliding layers": _period(key("attention.sliding_window_pattern", 2)),
        "value size": key("attention.value_length", found["width"] / heads) / size,
        "rotated part of a head": key("rope.dimension_count", size) / size,
        "heads of sliding layers": key("attention.key_length_swa", size)
        * key("attention.value_length_swa", size)
        * key("rope.dimension_count_swa", size)
        / size**3,
        "rotation base of sliding layers": key("rope.freq_base_swa", theta) / theta,
    }
    factor = float(key("rope.scaling.factor", key("rope.scale_linear", 0.0)) or 1.0)
    kind = key("rope.scaling.type", "linear")
    magnitude = float(key("rope.scaling.attn_factor", 1.0))
    if kind == "none":
        return found | _rotations(size, theta, magnitude=magnitude)
    if kind != "yarn":
        numbers = _rotations(size, theta, magnitude=magnitude)
        return found | numbers | {"angles": numbers["angles"] / factor}
    # beta_fast and beta_slow are not read for gpt-oss; the extrapolation factor is 1.
    original = key("rope.scaling.original_context_length", found["context"])
    magnitude *= 1.0 + 0.1 * math.log(factor) if factor > 1 else 1.0
    return found | _rotations(size, theta, factor, original, 32, 1, magnitude)


def oddities(numbers: Numbers) -> Iterator[tuple[str, Any, Any]]:
    """Yield what a GGUF's keys state that no gpt-oss computes: its name, and both values."""
    yield from differences(numbers, _BUILT_IN)


def key_of(name: str) -> str:
    """Return the key of a GGUF that states a number, or those of its rotations."""
    return _PREFIX + _GGUF_KEYS.get(name, "rope.*")


def differences(ours: Numbers, theirs: Numbers) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs: its name, and both values; of rotations the worst."""
    for name, right in theirs.items():
        stated = ours[name]
        if name != "angles":
            if not math.isclose(stated, right, rel_tol=_TOLERANCE):
                yield name, stated, right
            continue
        if stated.shape != right.shape:
            yield "rotated dimensions", 2 * stated.size, 2 * right.size
            continue
        worst = int(np.abs(stated / right - 1).argmax())
        if not np.allclose(stated, right, rtol=_TOLERANCE, atol=0):
            yield f"rotation of dimension {worst}", float(stated[worst]), float(right[worst])


def _period(stated: Any) -> Any:
    """Return after how many layers sliding and full attention repeat; a list must alternate."""
    if not isinstance(stated, list):
        return stated
    return 2 if [bool(each) for each in stated] == [i % 2 == 0 for i in range(len(stated))] else 0


def _rotations(
    size: int,
    theta: float,
    factor: float = 1.0,
    original: int = 0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    magnitude: float = 1.0,
) -> Numbers:
    """Return the angle by which each pair of dimensions turns from one position to the next.

    The range between both betas is widened to whole dimensions, as ggml always does it, also for
    gpt-oss, which has `truncate: false`.
    """
    if not 0 < theta < _MAX_THETA:
        raise ValueError(f"a rotation base of {theta}")
    pairs = np.arange(0, size, 2) / size
    plain: NDArray[np.float64] = float(theta) ** -pairs
    if not original:
        return {"angles": plain, "magnitude": magnitude, "original context": 0}

    def dimension(turns: float) -> float:
        """Return the dimension that turns so often within the original context."""
        inside = original / (turns * 2 * math.pi)
        return size * math.log(inside) / (2 * math.log(theta))

    low = max(0, math.floor(dimension(beta_fast)))
    high = min(size - 1, math.ceil(dimension(beta_slow)))
    ramp = (np.arange(size // 2) - low) / max(0.001, high - low)
    kept = 1 - np.clip(ramp, 0, 1)
    angles = plain / factor * (1 - kept) + plain * kept
    return {"angles": angles, "magnitude": magnitude, "original context": original}
