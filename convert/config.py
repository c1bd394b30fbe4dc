"""Reads the `config.json` of a gpt-oss model and checks that llama.cpp can run it.

llama.cpp has some numbers built in (which layers slide, the SwiGLU clamp), so others are refused.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from convert.foreign import check_quantization
from convert.json_file import read_json
from convert.layout import CONFIG_NAME, check_link, find_weights
from convert.rope import TOP_LEVEL_KEYS, Count, RopeConfig, read_rope
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.validation import in_words

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
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
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


def read_config(folder: Path) -> ModelConfig:
    """Read `config.json` of transformers 4 or 5, or of the original layout, and check it."""
    folder = find_weights(folder)
    path = folder / CONFIG_NAME
    fields = _read_fields(folder)
    try:
        if _is_original(fields):
            _check_stated(fields, path, is_original=True)
            fields = msgspec.convert(fields, _OriginalConfig).to_hugging_face()
        else:
            _check_architecture(fields, folder)
            for key in ("quantization_config", "quantization"):  # MLX has both
                check_quantization(fields.get(key), str(path))
            fields = _unify(fields, path)
            _check_stated(fields, path)
        # A key that is null counts as missing.
        fields = {key: value for key, value in fields.items() if value is not None}
        config = msgspec.convert({**fields, "rope": read_rope(fields, path)}, ModelConfig)
    except msgspec.ValidationError as error:
        raise ConvertError(f"{path} does not fit gpt-oss: {in_words(error, fields)}.") from error
    check_config(config, path)
    return config


def _check_architecture(fields: dict[str, Any], folder: Path) -> None:
    stated = fields.get("architectures")
    if isinstance(stated, list) and len(stated) > 1 and ARCHITECTURE in stated:
        raise ConvertError(
            f"{folder / CONFIG_NAME} states {len(stated)} architectures: {stated!a:.200}.",
            hint=f"If the weights are of a gpt-oss, leave {ARCHITECTURE} alone there.",
        )
    if stated != [ARCHITECTURE]:
        raise ConvertError(
            f"{folder} is not a gpt-oss checkpoint: its architecture is "
            f"{stated}, not {ARCHITECTURE}.",
            hint="Only gpt-oss models can be converted.",
        )


def is_original(folder: Path) -> bool:
    return _is_original(_read_fields(folder))


def _read_fields(folder: Path) -> dict[str, Any]:
    check_link(folder / CONFIG_NAME)
    return read_json(folder / CONFIG_NAME)


def _is_original(fields: dict[str, Any]) -> bool:
    return "architectures" not in fields and "num_experts" in fields


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
    *("swiglu_limit", "top_k", "original_num_experts"),
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


def _unify(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Leave out `experts_per_token`, which OpenAI's checkpoints state besides Hugging Face's."""
    unified = dict(fields)
    other = unified.pop("experts_per_token", None)
    stated = unified.get("num_experts_per_tok")
    if other is not None and other != stated:
        raise ConvertError(
            f"{path} states two values of one size: num_experts_per_tok is {stated!r} and "
            f"experts_per_token is {other!r}."
        )
    return unified


def _check_stated(fields: Mapping[str, Any], path: Path, *, is_original: bool = False) -> None:
    """Check every key that could change the computation and is not a number of `ModelConfig`."""
    known = _NO_EFFECT | TOP_LEVEL_KEYS | (_ORIGINAL if is_original else set())
    for key, value in fields.items():
        if value is None or key.startswith("_"):
            continue
        if key in _FIXED:
            _check_fixed(key, value, path)
        elif key not in known and _SUSPICIOUS.search(key):
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
