"""The scalar keys of a gpt-oss GGUF, from `config.json` and `convert.metadata`."""

import contextlib
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from gguf import (
    GGML_QUANT_VERSION,
    GGUFWriter,
    LlamaFileType,
    Metadata,
    RopeScalingType,
    size_label,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from convert.config import ModelConfig, yarn_scale
from convert.files import read_bytes, read_json
from convert.source import ORIGINAL_NAME
from convert.tensor_map import ExpertType
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.o200k import ENDS, FIRST_SPECIAL

CARD_NAME = "README.md"

_NULL = ("", "~", "null", "Null", "NULL")
_SAMPLING = (
    *("sequence", "top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold", "temperature"),
    *("penalty_last_n", "penalty_repeat", "mirostat", "mirostat_tau", "mirostat_eta"),
)
# Other keys of generation_config.json that change no answer here.
_WITHOUT_EFFECT = {
    *("bos_token_id", "pad_token_id", "do_sample", "transformers_version", "max_length"),
    *("max_new_tokens", "use_cache", "cache_implementation", *_SAMPLING),
}


def read_general(folder: Path, n_parameters: int) -> tuple[Metadata, list[str]]:
    """Read the keys `general.*`, and notes on values left out. Source: `Metadata.load` in gguf."""
    notes: list[str] = []
    card = _read_card(folder / CARD_NAME, notes)
    name = _read_object(folder / "config.json").get("_name_or_path")
    known = {"_name_or_path": name} if isinstance(name, str) else {}
    general = Metadata()
    try:
        Metadata.apply_metadata_heuristic(general, card, known, folder, n_parameters)
    except Exception as error:  # gguf trips over unexpected values, in any way
        notes.append(f"{CARD_NAME} was left out, as it cannot be understood: {error}")
        general = Metadata()
    stated = _read_object(folder / "generation_config.json")
    for key in _SAMPLING:
        if stated.get(key) is not None:
            setattr(general, f"sampling_{key.replace('temperature', 'temp')}", stated[key])
    notes += _drop_odd(general)
    if unused := [key for key, value in stated.items() if _has_effect(key, value)]:
        notes.append(f"generation_config.json states {', '.join(unused)}: not used here")
    return general, notes


def _has_effect(key: str, value: Any) -> bool:
    if key == "eos_token_id":
        ends = value if isinstance(value, list) else ()
        return any(type(i) is int and FIRST_SPECIAL <= i not in ENDS for i in ends)
    return (
        value not in (None, False, 1, [], {})
        and key not in _WITHOUT_EFFECT
        and not key.startswith("_")
    )


def _read_card(path: Path, notes: list[str]) -> dict[str, Any]:
    """Read the head of a card; all its values are text, or lists of it, as they are written."""
    try:
        text = read_bytes(path).decode("utf-8-sig", errors="replace")
    except (OSError, ConvertError):
        return {}
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}
    ends = [i for i, line in enumerate(lines) if i and line.rstrip() == "---"]
    head = "\n".join(lines[1 : ends[0] if ends else None]).replace("\t", "  ")
    try:
        # Every scalar stays text: `no` is Norwegian, `1.0` a version.
        found = YAML(typ="base", pure=True).load(head)
    except (YAMLError, RecursionError, ValueError) as error:
        where = str(error).splitlines()[0] if str(error) else "broken"
        notes.append(f"{path.name} was left out, as its head is not valid YAML: {where}")
        return {}
    if not isinstance(found, dict):
        return {}
    plain = {key: _plain(value) for key, value in found.items() if isinstance(key, str)}
    return {key: value for key, value in plain.items() if value not in (None, [])}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return None if value in _NULL else value
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, str)}
    if isinstance(value, list):
        items = [_plain(item) for item in value if isinstance(item, str | dict)]
        return [item for item in items if item]
    return None


def _read_object(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ConvertError):
        return read_json(path)
    return {}


def _drop_odd(general: Metadata) -> list[str]:
    notes = []
    for field, kind in get_type_hints(Metadata).items():
        value = getattr(general, field)
        if isinstance(value, list) and kind == str | None:
            value = ", ".join(item for item in value if isinstance(item, str)) or None
        try:
            msgspec.json.encode(value)  # fails for half a character
            if isinstance(value, int | float) and not abs(value) < 1 << 31:
                raise ValueError("too large")
            setattr(general, field, msgspec.convert(value, kind))
        except ValueError:
            notes.append(f"{field} was left out: a GGUF cannot hold {value!a:.80}")
            setattr(general, field, None)
    return notes


ARCH = "gpt-oss"

_FILE_TYPES = {"mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE, "bf16": LlamaFileType.MOSTLY_BF16}


def add_metadata(
    writer: GGUFWriter, config: ModelConfig, folder: Path, experts: ExpertType = "mxfp4"
) -> list[str]:
    """Add all keys but the tokenizer's; the writer knows all tensors. Return notes.

    Source: `TextModel.set_gguf_parameters` in llama.cpp's conversion/base.py, gpt_oss.py.
    """
    notes = _add_general(writer, folder)
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
    # The type of most of the file, as in the published GGUFs, with any dense type.
    writer.add_file_type(_FILE_TYPES[experts])
    writer.add_quantization_version(GGML_QUANT_VERSION)
    return notes


def _add_general(writer: GGUFWriter, folder: Path) -> list[str]:
    counts = writer.get_total_parameter_count()
    folder = folder.resolve()
    if folder.name == ORIGINAL_NAME:
        folder = folder.parent
    general, notes = read_general(folder, counts[0])
    general.name = general.name or folder.name
    general.size_label = general.size_label or size_label(*counts)
    writer.add_type("model")
    general.set_gguf_meta_model(writer)
    return notes


def _add_rope(writer: GGUFWriter, config: ModelConfig) -> None:
    rope = config.rope
    writer.add_rope_freq_base(rope.rope_theta)
    if rope.rope_type != "yarn" or rope.original_max_position_embeddings is None:
        return
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope.factor)
    writer.add_rope_scaling_orig_ctx_len(rope.original_max_position_embeddings)
    if rope.attention_factor is not None:
        # The first multiplies YaRN's own factor. The second is written by llama.cpp's converter,
        # and not read by its loader for gpt-oss.
        writer.add_rope_scaling_attn_factors(rope.attention_factor / yarn_scale(rope.factor))
        writer.add_rope_scaling_yarn_attn_factor(rope.attention_factor)
    if rope.beta_fast is not None:
        writer.add_rope_scaling_yarn_beta_fast(rope.beta_fast)
    if rope.beta_slow is not None:
        writer.add_rope_scaling_yarn_beta_slow(rope.beta_slow)
