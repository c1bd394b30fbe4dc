"""Reads the `config.json` of a gpt-oss model and checks that llama.cpp can run it.

llama.cpp has some numbers built in (which layers slide, the SwiGLU clamp), so others are refused.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from convert.foreign import check_quantization
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.o200k import MAX_VOCAB_SIZE
from gptoss_local.base.validation import in_words

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
"""Far above any published size, and low enough not to exhaust the memory by a list."""

_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]

_PLACES = ("rope_scaling", "rope_parameters")
_ORIGINAL_CONTEXT = "original_max_position_embeddings"
_TOP = ("rope_theta", "partial_rotary_factor", _ORIGINAL_CONTEXT)

TOP_LEVEL_KEYS = frozenset({*_PLACES, *_TOP})

# Built into llama.cpp for gpt-oss, or without effect.
_ROPE_FIXED = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attn_factor": 1.0,
    "extrapolation_factor": 1.0,
    "partial_rotary_factor": 1.0,
}
_ROPE_IGNORED = ("truncate", "finetuned")  # ggml always truncates; docs/convert.md has the cost
_YARN = ("factor", _ORIGINAL_CONTEXT, "attention_factor")


class RopeConfig(msgspec.Struct, frozen=True):
    """Rotary position embedding, and YaRN; `attention_factor` None is YaRN's own."""

    rope_theta: Annotated[float, msgspec.Meta(gt=1, le=1e12)]
    rope_type: str = "default"
    factor: _Positive = 1.0
    original_max_position_embeddings: Count | None = None
    beta_fast: _Positive | None = None
    beta_slow: _Positive | None = None
    attention_factor: _Positive | None = None


def yarn_scale(factor: float) -> float:
    """Return the factor of cosine and sine for a context that is `factor` times as long."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def read_rope(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Collect and check the fields of a `RopeConfig`; types are checked here only for YaRN."""
    stated = _rope_stated(fields, path)
    if "rope_theta" not in stated:
        raise ConvertError(f"{path} does not fit gpt-oss: it lacks rope_theta.")
    is_scaled = any(fields.get(place) for place in _PLACES)
    kind = _rope_type(stated, path, is_scaled=is_scaled)
    place = next((place for place in _PLACES if fields.get(place)), _PLACES[0])
    for key in sorted(stated.keys() - {"rope_theta", *_ROPE_FIXED, *_ROPE_IGNORED, *_YARN}):
        raise _refused(path, f"states {key} in {place}, which is not a known key")
    found = {key: value for key, value in stated.items() if key in RopeConfig.__struct_fields__}
    if kind == "yarn":
        for key in (_ORIGINAL_CONTEXT, "factor"):
            if key not in found:
                raise ConvertError(f"{path} lacks {key}, which YaRN needs.")
        try:
            msgspec.convert(found, RopeConfig)
        except msgspec.ValidationError as error:
            raise ConvertError(f"{path} does not fit gpt-oss: {in_words(error, found)}.") from error
    else:  # without scaling the original context means nothing
        for key in sorted(
            stated.keys() - {"rope_theta", "partial_rotary_factor", _ORIGINAL_CONTEXT}
        ):
            raise _refused(path, f"states {key}, but the rope_type {kind!r}, which has none")
        found = {"rope_theta": stated["rope_theta"]}
    for key, right in _ROPE_FIXED.items():
        if (value := stated.get(key, right)) != right or isinstance(value, bool):
            what = f"states a {key} of {value!r}; llama.cpp runs gpt-oss with {right:g}"
            raise _refused(path, what)
    for key in _ROPE_IGNORED:
        if not isinstance(stated.get(key, False), bool):
            raise _refused(path, f"states a {key} of {stated[key]!r}, which is not true or false")
    return {"rope_type": kind} | found


def _rope_stated(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Merge the two objects where scaling may be stated, and the keys outside of them."""
    merged: dict[str, Any] = {}
    for place in _PLACES:
        found = fields.get(place) or {}
        if not isinstance(found, dict):
            raise ConvertError(
                f"{path} does not fit gpt-oss: {place} is {found!a:.80}, not an object "
                "of rope_type, rope_theta and the like."
            )
        _add(merged, found, path)
    _add(merged, {key: fields.get(key) for key in _TOP}, path)
    return merged


def _add(merged: dict[str, Any], found: Mapping[str, Any], path: Path) -> None:
    for key, value in found.items():
        if value is not None and merged.setdefault(key, value) != value:
            raise _refused(path, f"states two values of {key}: {merged[key]!r} and {value!r}")


def _rope_type(stated: dict[str, Any], path: Path, *, is_scaled: bool) -> str:
    names = [stated.pop(key) for key in ("rope_type", "type") if key in stated]
    if len(names) == 2 and names[0] != names[1]:
        raise _refused(path, f"states the rope_type {names[0]!r} and the type {names[1]!r}")
    if names and names[0] in ("default", "yarn"):
        return str(names[0])
    if names:
        raise ConvertError(
            f"{path} states the rope_type {names[0]!r}, which is not known; gpt-oss uses yarn."
        )
    if scaling := sorted(stated.keys() & {*_YARN, "beta_fast", "beta_slow"}):
        raise _refused(path, f"states {scaling[0]}, but no rope_type")
    if not is_scaled:  # transformers 5 takes YaRN for this, transformers 4 and llama.cpp none
        raise ConvertError(
            f"{path} does not say whether positions are scaled.",
            hint='Copy rope_scaling from the base model\'s config.json, or state {"rope_type": '
            '"default"} there if positions are not scaled.',
        )
    return "default"


def _refused(path: Path, what: str) -> ConvertError:
    return ConvertError(
        f"{path} {what}.",
        hint="The model would compute something else in llama.cpp. If the key is wrong or has "
        "no effect, take it out of config.json.",
    )


CONFIG_NAME = "config.json"
ARCHITECTURE = "GptOssForCausalLM"
BLOCK_SIZE = 32  # values that share a scale, in MXFP4 and Q8_0 alike


class ModelConfig(msgspec.Struct, frozen=True):
    """The fields of `config.json` that shape tensors or become GGUF keys, under HF's names."""

    num_hidden_layers: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    num_local_experts: Count
    num_experts_per_tok: Count
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_VOCAB_SIZE)]
    max_position_embeddings: Count
    sliding_window: Count
    rms_norm_eps: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    rope: RopeConfig
    layer_types: list[str] | None = None
    swiglu_limit: float = 7.0
    tie_word_embeddings: bool = False

    @property
    def n_q(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def n_kv(self) -> int:
        return self.num_key_value_heads * self.head_dim


class _OriginalConfig(msgspec.Struct, frozen=True):
    """`config.json` in the original layout. Source: `ModelConfig` in OpenAI's torch/model.py."""

    num_hidden_layers: int
    num_experts: int
    experts_per_token: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    head_dim: int
    num_attention_heads: int
    num_key_value_heads: int
    sliding_window: int
    initial_context_length: Count
    rope_theta: float
    rope_scaling_factor: Annotated[float, msgspec.Meta(ge=1, le=1e6)]
    rope_ntk_alpha: float
    rope_ntk_beta: float
    swiglu_limit: float = 7.0

    def to_hugging_face(self) -> dict[str, Any]:
        n_context = self.initial_context_length
        yarn = {
            "rope_type": "yarn",
            "factor": self.rope_scaling_factor,
            "original_max_position_embeddings": n_context,
            "beta_fast": self.rope_ntk_beta,
            "beta_slow": self.rope_ntk_alpha,
        }
        return msgspec.structs.asdict(self) | {
            "num_local_experts": self.num_experts,
            "num_experts_per_tok": self.experts_per_token,
            "max_position_embeddings": int(n_context * self.rope_scaling_factor),
            "rms_norm_eps": 1e-5,  # not stated there: RMSNorm in torch/model.py has it built in
            "rope_scaling": yarn if self.rope_scaling_factor > 1 else {"rope_type": "default"},
        }


def parse_config(fields: dict[str, Any], path: Path) -> ModelConfig:
    try:
        if not is_original(fields):
            _check_architecture(fields, path)
        _check_stated(fields, path)
        if is_original(fields):
            fields = msgspec.convert(fields, _OriginalConfig).to_hugging_face()
        # A key that is null counts as missing.
        fields = {key: value for key, value in fields.items() if value is not None}
        config = msgspec.convert({**fields, "rope": read_rope(fields, path)}, ModelConfig)
    except msgspec.ValidationError as error:
        raise ConvertError(f"{path} does not fit gpt-oss: {in_words(error, fields)}.") from error
    check_config(config, path)
    return config


def is_original(fields: Mapping[str, Any]) -> bool:
    return "architectures" not in fields and "num_experts" in fields


def _check_architecture(fields: dict[str, Any], path: Path) -> None:
    stated = fields.get("architectures")
    if isinstance(stated, list) and len(stated) > 1 and ARCHITECTURE in stated:
        raise ConvertError(
            f"{path} states {len(stated)} architectures: {stated!a:.200}.",
            hint=f"If the weights are of a gpt-oss, leave {ARCHITECTURE} alone there.",
        )
    if stated != [ARCHITECTURE]:
        raise ConvertError(
            f"{path.parent} is not a gpt-oss checkpoint: its architecture is "
            f"{stated}, not {ARCHITECTURE}.",
            hint="Only gpt-oss models can be converted.",
        )
    for key in ("quantization_config", "quantization", "compression_config"):  # MLX has two
        check_quantization(fields.get(key), str(path))
    stated, other = fields.get("num_experts_per_tok"), fields.get("experts_per_token")
    if other not in (None, stated):  # OpenAI's checkpoints state both
        raise ConvertError(
            f"{path} states two values of one size: num_experts_per_tok is {stated!r} and "
            f"experts_per_token is {other!r}."
        )


def check_config(config: ModelConfig, path: Path) -> None:
    n_layers = config.num_hidden_layers
    alternating = ["sliding_attention", "full_attention"] * n_layers
    if config.layer_types is not None and config.layer_types != alternating[:n_layers]:
        raise ConvertError(
            f"{path} orders the layer_types in a way that llama.cpp cannot run; "
            "it needs alternating sliding and full attention."
        )
    if config.swiglu_limit != 7.0:  # LLM_FFN_SWIGLU_OAI_MOE in llama.cpp
        raise ConvertError(
            f"{path} states a swiglu_limit of {config.swiglu_limit}; llama.cpp can run only 7."
        )
    if config.rope.rope_type not in ("default", "yarn"):
        raise ConvertError(f"{path} states the rope_type {config.rope.rope_type!r}, not yarn.")
    if config.num_experts_per_tok > config.num_local_experts:
        raise ConvertError(f"{path} states more experts per token than there are experts.")
    if config.num_attention_heads % config.num_key_value_heads:
        raise ConvertError(
            f"{path} states {config.num_attention_heads} attention heads, not a multiple of the "
            f"{config.num_key_value_heads} key-value heads."
        )
    if config.head_dim % 2:
        raise ConvertError(
            f"{path} states a head_dim of {config.head_dim}; it must be even, as positions rotate "
            "pairs of dimensions."
        )
    widths = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads * head_dim": config.n_q,
    }
    for key, width in widths.items():
        if width < BLOCK_SIZE or width % BLOCK_SIZE:
            raise ConvertError(f"{key} is {width} in {path}, not a multiple of {BLOCK_SIZE}.")


# The only values that llama.cpp can compute for gpt-oss.
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
    *("swiglu_limit", "top_k", "original_num_experts", "experts_per_token"),
}
_ORIGINAL = {"rope_scaling_factor", "rope_ntk_alpha", "rope_ntk_beta", "num_experts"}
_SUSPICIOUS = re.compile(
    r"rope|rotary|theta|yarn|mscale|attn|attention|head|qk|window|sliding|layer_type|sink|softcap"
    r"|expert|moe|router|routed|routing|gating|scoring|top_?k|n_group|swiglu|glu|hidden_act"
    r"|multiplier|logit_scal|residual_scal|embedding_scal|score_func|sparse_step|dense_|mlp_only"
    r"|^auto_map$|^n_|^dim$|^hidden_dim$|^num_layers$|^norm_eps$"
)


def _check_stated(fields: Mapping[str, Any], path: Path) -> None:
    """Check every key that could change the computation and is not a number of `ModelConfig`."""
    known = _NO_EFFECT | TOP_LEVEL_KEYS | (_ORIGINAL if is_original(fields) else set())
    for key, value in fields.items():
        if value is None or key.startswith("_"):
            continue
        right = _FIXED.get(key)
        if right is not None and (value != right or isinstance(value, bool) != (right is True)):
            raise ConvertError(
                f"{path} states a {key} of {value!a:.80}; llama.cpp runs gpt-oss only with "
                f"{right!r}."
            )
        if key not in known | _FIXED.keys() and _SUSPICIOUS.search(key):
            raise ConvertError(
                f"{path} states {key}, which is not a known setting of gpt-oss.",
                hint="The model might compute something else in llama.cpp. If the key has no "
                "effect, take it out of config.json.",
            )
