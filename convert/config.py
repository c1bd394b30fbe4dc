"""What `config.json` says of a gpt-oss model, checked against what llama.cpp can run.

llama.cpp has a few of the architecture's numbers built in (which layers slide, the SwiGLU clamp). A
config that states others would convert and then compute nonsense, so it is refused here.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from gptoss_local.errors import ConvertError

ARCHITECTURE = "GptOssForCausalLM"
BLOCK_SIZE = 32  # values that share a scale, in MXFP4 and Q8_0 alike

_Count = Annotated[int, msgspec.Meta(ge=1)]


class RopeConfig(msgspec.Struct, frozen=True):
    """Rotary position embedding, and YaRN if it stretches the context."""

    rope_theta: float
    rope_type: str = "default"
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None


class ModelConfig(msgspec.Struct, frozen=True):
    """The fields of `config.json` that shape tensors or become GGUF keys, under HF's names."""

    num_hidden_layers: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    hidden_size: _Count
    intermediate_size: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count
    head_dim: _Count
    num_local_experts: _Count
    num_experts_per_tok: _Count
    vocab_size: _Count
    max_position_embeddings: _Count
    sliding_window: _Count
    rms_norm_eps: float
    rope: RopeConfig
    layer_types: list[str] | None = None
    swiglu_limit: float = 7.0


def read_config(folder: Path) -> ModelConfig:
    """Read `config.json` of transformers 4 or 5.

    Raises:
        ConvertError: It is missing, is not gpt-oss, or states what llama.cpp cannot do.
    """
    fields = read_json(folder / "config.json")
    if fields.get("architectures") != [ARCHITECTURE]:
        raise ConvertError(
            f"{folder} is not a gpt-oss checkpoint: its architecture is "
            f"{fields.get('architectures')}, not {ARCHITECTURE}.",
            hint="Only gpt-oss models can be converted.",
        )
    # transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters.
    rope = {key: fields[key] for key in ("rope_theta",) if key in fields}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(stated := fields.get(key), dict):
            rope |= stated
    try:
        config = msgspec.convert({**fields, "rope": rope}, ModelConfig)
    except msgspec.ValidationError as error:
        raise ConvertError(f"config.json does not fit gpt-oss: {error}.") from error
    _check(config)
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that must hold one JSON object.

    Raises:
        ConvertError: It is missing or not a JSON object.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError as error:
        raise ConvertError(f"{path} is missing.", hint="Finish the download first.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConvertError(f"{path} is not valid: {error}.") from error


def _check(config: ModelConfig) -> None:
    n_layers = config.num_hidden_layers
    alternating = ["sliding_attention", "full_attention"] * n_layers
    if config.layer_types is not None and config.layer_types != alternating[:n_layers]:
        raise ConvertError(
            "config.json orders the layer_types in a way that llama.cpp cannot run; "
            "it needs sliding and full attention by turns."
        )
    if config.swiglu_limit != 7.0:  # LLM_FFN_SWIGLU_OAI_MOE in llama.cpp
        raise ConvertError(f"llama.cpp cannot run a swiglu_limit of {config.swiglu_limit}, only 7.")
    if config.rope.rope_type not in ("default", "yarn"):
        raise ConvertError(
            f"The rope_type {config.rope.rope_type!r} is not known; gpt-oss uses yarn."
        )
    if config.rope.rope_type == "yarn" and config.rope.original_max_position_embeddings is None:
        raise ConvertError("config.json lacks original_max_position_embeddings, which YaRN needs.")
    widths = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads * head_dim": config.num_attention_heads * config.head_dim,
    }
    for key, width in widths.items():
        if width < BLOCK_SIZE or width % BLOCK_SIZE:
            raise ConvertError(f"{key} is {width} in config.json, not a multiple of {BLOCK_SIZE}.")
