"""The scalar keys of a gpt-oss GGUF, from `config.json` and the model card.

This module does not know the tokenizer and writes no arrays.
"""

import dataclasses
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # gguf itself depends on it
from gguf import (
    GGML_QUANT_VERSION,
    GGUFWriter,
    LlamaFileType,
    Metadata,
    RopeScalingType,
    size_label,
)

from convert.config import ModelConfig
from convert.layout import ORIGINAL_NAME
from convert.tensor_map import ExpertType
from gptoss_local.errors import ConvertError

ARCH = "gpt-oss"

_FILE_TYPES = {"mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE, "bf16": LlamaFileType.MOSTLY_BF16}
_CARD_HINT = "Delete README.md; only the model's name and licence are taken from it."


def add_metadata(
    writer: GGUFWriter, config: ModelConfig, folder: Path, experts: ExpertType = "mxfp4"
) -> None:
    """Add all keys but the tokenizer's.

    Args:
        writer: Must know all tensors, as the size label counts parameters.
        config: Gives the numbers.
        folder: The checkpoint; its README.md and its name tell the model's name and licence, for
            `original/` those of the folder around it.
        experts: What most of the file consists of.

    Raises:
        ConvertError: The model card cannot be read.

    Source: `TextModel.set_gguf_parameters` in llama.cpp's conversion/base.py, gpt_oss.py.
    """
    _add_general(writer, folder)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size)
    _add_rope(writer, config)
    # Says what dominates the file, as the published GGUFs do, whatever the dense type.
    writer.add_file_type(_FILE_TYPES[experts])
    writer.add_quantization_version(GGML_QUANT_VERSION)


def _add_general(writer: GGUFWriter, folder: Path) -> None:
    counts = writer.get_total_parameter_count()
    folder = folder.resolve()
    if folder.name == ORIGINAL_NAME:
        folder = folder.parent
    try:
        general = Metadata.load(model_path=folder, total_params=counts[0])
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConvertError(
            f"The head of {folder / 'README.md'} is not valid YAML.", hint=_CARD_HINT
        ) from error
    # gguf takes what the files say as it is, and trips over anything but text.
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConvertError(
            f"{folder / 'README.md'} or a JSON file beside it describes the model in a way that "
            f"cannot be read: {error}.",
            hint=_CARD_HINT,
        ) from error
    general.name = general.name or folder.name
    general.size_label = general.size_label or size_label(*counts)
    _check_general(general, folder)
    writer.add_type("model")
    general.set_gguf_meta_model(writer)


def _check_general(general: Metadata, folder: Path) -> None:
    """Check the types of what came from the model card, as gguf writes whatever it finds there."""
    for field in dataclasses.fields(general):
        value = getattr(general, field.name)
        if value is not None and not _is_plain(value, str(field.type)):
            raise ConvertError(
                f"{folder / 'README.md'} or a JSON file beside it gives a {field.name} that a GGUF "
                f"cannot hold: {value!a:.80}.",
                hint=_CARD_HINT,
            )


def _is_plain(value: object, declared: str) -> bool:
    if "list[dict]" in declared:
        return isinstance(value, list) and all(
            isinstance(item, dict) and all(map(_is_text, item.values())) for item in value
        )
    if "list" in declared:
        return isinstance(value, list) and all(map(_is_text, value))
    if "str" in declared:
        return _is_text(value)
    limit = 1 << 31 if "int" in declared else 1e38
    return isinstance(value, int | float) and -limit < value < limit


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def _add_rope(writer: GGUFWriter, config: ModelConfig) -> None:
    rope = config.rope
    writer.add_rope_freq_base(rope.rope_theta)
    if rope.rope_type != "yarn" or rope.original_max_position_embeddings is None:
        return
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope.factor)
    writer.add_rope_scaling_orig_ctx_len(rope.original_max_position_embeddings)
    if rope.beta_fast is not None:
        writer.add_rope_scaling_yarn_beta_fast(rope.beta_fast)
    if rope.beta_slow is not None:
        writer.add_rope_scaling_yarn_beta_slow(rope.beta_slow)
