"""The numbers that a GGUF states of its model: complete, possible, and true of its tensors.

They are read into the same `ModelConfig` as a checkpoint's config.json, so that both can be
compared field by field.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType

from convert.config import ModelConfig, RopeConfig, check_config
from convert.metadata import ARCH
from convert.tensor_map import gguf_shapes
from convert.verify.report import Report
from convert.verify.structure import Part
from gptoss_local.errors import ConvertError
from gptoss_local.gguf_file import GGUFInfo

_KEYS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "expert_feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
}
_ROPE_KEYS = {
    "rope_theta": "rope.freq_base",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
_SAME = {
    "attention.value_length": "attention.key_length",
    "feed_forward_length": "expert_feed_forward_length",
}
_FLOATS = {
    "attention.layer_norm_rms_epsilon",
    *(_ROPE_KEYS[field] for field in ("rope_theta", "factor", "beta_fast", "beta_slow")),
}
_BUILT_IN = ("layer_types", "swiglu_limit")  # of llama.cpp, so there is no key

_F32, _MXFP4 = GGMLQuantizationType.F32, GGMLQuantizationType.MXFP4
_MATRIX_TYPES = {
    _F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q8_0,
}


def check_keys(part: Part, n_vocab: int, report: Report) -> ModelConfig | None:
    """Check the keys of a model's first file.

    Args:
        part: The file.
        n_vocab: Tokens of its vocabulary.
        report: Gets what is wrong.

    Returns:
        What they state, unless something is wrong with them.
    """
    path, info = part.path, part.info
    if info.architecture != ARCH:
        named = f"The architecture is {info.architecture or 'not stated'}, not {ARCH}."
        report.find(path, "general.architecture", named)
        return None
    _check_types(part, report)
    _check_same(part, report)
    try:
        stated = {"vocab_size": n_vocab, "rope": _values(info, _ROPE_KEYS)}
        config = msgspec.convert(_values(info, _KEYS) | stated, ModelConfig)
        if config.rope.rope_type == "none":
            config = msgspec.structs.replace(config, rope=RopeConfig(config.rope.rope_theta))
        check_config(config, path)
    except msgspec.ValidationError as error:
        report.find(path, "keys", f"The keys do not fit gpt-oss: {_in_our_words(str(error))}.")
        return None
    except ConvertError as error:
        report.find(path, "keys", error.message)
        return None
    return config


def check_shapes(parts: Sequence[Part], config: ModelConfig, report: Report) -> None:
    """Check that the files hold a model's tensors and no others, of right shapes and types."""
    expected = gguf_shapes(config)
    for part in parts:
        for tensor in part.info.tensors:
            shape = expected.pop(tensor.name, None) or _fused(expected, tensor.name)
            if shape is None:
                message = f"gpt-oss has no tensor {tensor.name}, or has it once only."
                report.find(part.path, tensor.name, message)
                continue
            if shape != tensor.shape:
                ours, right = list(tensor.shape[::-1]), list(shape[::-1])
                message = f"{tensor.name} is {ours} where the keys call for {right}."
                report.find(part.path, tensor.name, message)
            _check_type(part.path, tensor.name, tensor.type_id, report)
    if expected:
        first = next(iter(expected))
        message = f"{len(expected)} tensors are missing, the first is {first}."
        report.find(parts[0].path, first, message)


def compare_configs(path: Path, ours: ModelConfig, theirs: ModelConfig, report: Report) -> None:
    """Check that a file's keys state what a checkpoint's config.json does."""
    ours_flat, theirs_flat = _flatten(ours), _flatten(theirs)
    for field, right in theirs_flat.items():
        stated = ours_flat.get(field)
        if stated != right and not _is_same_float(stated, right):
            key = f"{ARCH}.{(_KEYS | _ROPE_KEYS).get(field, field)}"
            message = f"{key} is {stated}; the checkpoint's config.json states {right}."
            report.find(path, key, message)


def _values(info: GGUFInfo, keys: dict[str, str]) -> dict[str, Any]:
    named = {field: f"{ARCH}.{key}" for field, key in keys.items()}
    return {f: info.metadata[key] for f, key in named.items() if key in info.metadata}


def _in_our_words(message: str) -> str:
    for field, key in (_KEYS | _ROPE_KEYS).items():
        message = message.replace(f"`{field}`", f"{ARCH}.{key}")
        message = re.sub(rf"`\$\.(rope\.)?{field}`", f"{ARCH}.{key}", message)
    return message


def _check_types(part: Part, report: Report) -> None:
    """Check the type of each number, as llama.cpp takes no other."""
    for key in (*_KEYS.values(), *_SAME, *_ROPE_KEYS.values()):
        stated = part.info.key_types.get(f"{ARCH}.{key}")
        right = GGUFValueType.FLOAT32 if key in _FLOATS else GGUFValueType.UINT32
        if stated not in (None, right) and key != _ROPE_KEYS["rope_type"]:
            message = f"{ARCH}.{key} is not of type {right.name}, as llama.cpp needs it."
            report.find(part.path, f"{ARCH}.{key}", message)


def _check_same(part: Part, report: Report) -> None:
    """Check keys that always equal another."""
    metadata = part.info.metadata
    for key, other in _SAME.items():
        stated, right = metadata.get(f"{ARCH}.{key}"), metadata.get(f"{ARCH}.{other}")
        if stated != right:
            message = f"{ARCH}.{key} is {stated}, but {ARCH}.{other} is {right}."
            report.find(part.path, f"{ARCH}.{key}", message)


def fused_name(name: str) -> str:
    """Name the tensor that may hold q, k and v instead of three; any other keeps its name."""
    return re.sub(r"\.attn_[qkv]\.", ".attn_qkv.", name)


def _fused(expected: dict[str, tuple[int, ...]], name: str) -> tuple[int, ...] | None:
    """Take q, k and v for a tensor that is all three, one below the other."""
    names = [part for part in expected if part != name and fused_name(part) == name]
    if len(names) != len("qkv"):
        return None
    shapes = [expected.pop(part) for part in names]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _check_type(path: Path, name: str, type_id: int, report: Report) -> None:
    if name.endswith("_exps.weight"):
        allowed = _MATRIX_TYPES | {_MXFP4}
    elif name.endswith(".bias") or "norm." in name or "sinks." in name:
        allowed = {_F32}
    else:
        allowed = _MATRIX_TYPES
    if type_id not in allowed:
        known = {int(kind): kind.name for kind in GGMLQuantizationType}
        names = ", ".join(sorted(kind.name for kind in allowed))
        message = f"{name} is of type {known.get(type_id, type_id)}; only {names} can be checked."
        report.find(path, name, message)


def _flatten(config: ModelConfig) -> dict[str, Any]:
    fields = msgspec.structs.asdict(config)
    rope = msgspec.structs.asdict(fields.pop("rope"))
    if rope["rope_type"] != "yarn":
        rope = {key: rope[key] for key in ("rope_theta", "rope_type")}
    else:  # what llama.cpp takes for what is not stated, as does transformers
        rope |= {"beta_fast": rope["beta_fast"] or 32.0, "beta_slow": rope["beta_slow"] or 1.0}
    return {key: value for key, value in fields.items() if key not in _BUILT_IN} | rope


def _is_same_float(ours: object, theirs: object) -> bool:
    """Floats of a GGUF are of 32 bits."""
    return (
        isinstance(theirs, float)
        and isinstance(ours, float | int)
        and (np.float32(ours) == np.float32(theirs))
    )
