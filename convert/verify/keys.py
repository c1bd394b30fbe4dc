"""The numbers that a GGUF states of its model: complete, possible, and true of its tensors.

Source: llama-model.cpp, llama-context.cpp and openai-moe.cpp in llama.cpp, which read the keys.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gguf import GGUFValueType

from convert.config import ModelConfig, check_config
from convert.metadata import ARCH
from convert.rope import RopeConfig, yarn_scale
from convert.tensor_map import gguf_shapes
from convert.verify.report import Report
from convert.verify.structure import ModelFile
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.ggml_types import GGML_TYPES
from gptoss_local.base.formats.gguf_file import GGUFInfo, read_array
from gptoss_local.base.validation import in_words

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
    "attention_factor": "rope.scaling.attn_factor",  # here without YaRN's own
}
_SAME = {
    "attention.value_length": "attention.key_length",
    "feed_forward_length": "expert_feed_forward_length",
    "rope.dimension_count": "attention.key_length",
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.key_length",
    "rope.dimension_count_swa": "attention.key_length",
    "rope.freq_base_swa": "rope.freq_base",
}
_BUILT_IN: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "expert_group_count": (0, 1),
    "rope.scale_linear": (0, 1),
}
_FLOATS = {
    *("attention.layer_norm_rms_epsilon", "rope.freq_base_swa"),
    *(key for key in _ROPE_KEYS.values() if not key.endswith("original_context_length")),
}
_PATTERN = f"{ARCH}.attention.sliding_window_pattern"
_TOLERANCE = 1e-5  # floats of a GGUF have 32 bits


def check_keys(part: ModelFile, n_vocab: int, report: Report) -> ModelConfig | None:
    """Check the keys of a model's first file; return the model, unless something is wrong."""
    path, info = part.path, part.info
    if info.architecture != ARCH:
        named = f"The architecture is {info.architecture or 'not stated'}, not {ARCH}."
        report.find(path, "general.architecture", named)
        return None
    _check_types(part, report)
    _check_same(part, report)
    _check_built_in(part, report)
    if info.metadata.get(f"{ARCH}.rope.scaling.type") != "yarn":
        report.note(path, "its keys do not stretch the context by YaRN, as OpenAI's models do")
    try:
        stated = {"vocab_size": n_vocab, "rope": _values(info, _ROPE_KEYS)}
        config = msgspec.convert(_values(info, _KEYS) | stated, ModelConfig)
        rope = config.rope
        if rope.rope_type == "none":
            rope = RopeConfig(rope.rope_theta, attention_factor=rope.attention_factor)
        if rope.rope_type == "yarn":
            factor = (rope.attention_factor or 1.0) * yarn_scale(rope.factor)
            rope = msgspec.structs.replace(rope, attention_factor=factor)
        config = msgspec.structs.replace(config, rope=rope)
        check_config(config, path)
    except msgspec.ValidationError as error:
        report.find(path, "keys", f"The keys do not fit gpt-oss: {_in_our_words(error)}.")
        return None
    except ConvertError as error:
        report.find(path, "keys", error.message)
        return None
    return config


def check_shapes(parts: Sequence[ModelFile], config: ModelConfig, report: Report) -> None:
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


def compare_keys(part: ModelFile, ours: ModelConfig, theirs: ModelConfig, report: Report) -> None:
    """Check that a file's keys give the computation of a checkpoint's config.json."""
    for field, key in _KEYS.items():
        stated, right = getattr(ours, field), getattr(theirs, field)
        if not math.isclose(stated, right, rel_tol=_TOLERANCE):
            message = f"{ARCH}.{key} is {stated}; the checkpoint's config.json states {right}."
            report.find(part.path, f"{ARCH}.{key}", message)
    stated_rotation, right_rotation = _rotation(ours), _rotation(theirs)
    for name, right in right_rotation.items():
        if not math.isclose(stated_rotation[name], right, rel_tol=_TOLERANCE):
            keys = [key for key in part.info.metadata if key.startswith(f"{ARCH}.rope.")]
            values = (f"{key} is {part.info.metadata[key]}" for key in keys)
            message = (
                f"The keys give a {name} of {stated_rotation[name]}; config.json gives {right}. "
                f"Of {ARCH}.rope.*, {', '.join(values) or 'none is there'}."
            )
            report.find(part.path, f"{ARCH}.rope.*", message)


def _rotation(config: ModelConfig) -> dict[str, float]:
    rope = config.rope
    if rope.rope_type != "yarn":
        scaling = {"original context": 0, "magnitude": rope.attention_factor or 1.0}
    else:
        scaling = {
            "original context": rope.original_max_position_embeddings
            or config.max_position_embeddings,
            "magnitude": rope.attention_factor or yarn_scale(rope.factor),
        }
    return {"rotation base": rope.rope_theta, "scaling factor": rope.factor, **scaling}


def _values(info: GGUFInfo, keys: dict[str, str]) -> dict[str, Any]:
    named = {field: f"{ARCH}.{key}" for field, key in keys.items()}
    return {f: info.metadata[key] for f, key in named.items() if key in info.metadata}


def _in_our_words(error: msgspec.ValidationError) -> str:
    message = in_words(error)
    for field, key in (_KEYS | _ROPE_KEYS).items():
        message = re.sub(rf"^('?)(rope\.)?{field}\b", rf"\1{ARCH}.{key}", message)
    return message


def _check_types(part: ModelFile, report: Report) -> None:
    for key in (*_KEYS.values(), *_SAME, *_ROPE_KEYS.values()):
        stated = part.info.key_types.get(f"{ARCH}.{key}")
        right = GGUFValueType.FLOAT32 if key in _FLOATS else GGUFValueType.UINT32
        if stated not in (None, right) and key != _ROPE_KEYS["rope_type"]:
            message = f"{ARCH}.{key} is not of type {right.name}, as llama.cpp needs it."
            report.find(part.path, f"{ARCH}.{key}", message)


def _check_same(part: ModelFile, report: Report) -> None:
    """Check keys that always equal another; llama.cpp needs only the first if it is missing."""
    metadata = part.info.metadata
    for key, other in _SAME.items():
        stated, right = metadata.get(f"{ARCH}.{key}"), metadata.get(f"{ARCH}.{other}")
        if stated != right and (stated is not None or key == "attention.value_length"):
            message = f"{ARCH}.{key} is {stated}, but {ARCH}.{other} is {right}."
            report.find(part.path, f"{ARCH}.{key}", message)


def _check_built_in(part: ModelFile, report: Report) -> None:
    for key, right in _BUILT_IN.items():
        stated = part.info.metadata.get(f"{ARCH}.{key}", right[0])
        if stated not in right:
            message = f"{ARCH}.{key} is {stated}; gpt-oss has {right[0]}."
            report.find(part.path, f"{ARCH}.{key}", message)
    period = part.info.metadata.get(_PATTERN, 2)
    if period is None:
        layers = [bool(each) for each in read_array(part.path, _PATTERN)]
        period = 2 if layers == [i % 2 == 0 for i in range(len(layers))] else layers
    if period != 2:
        report.find(part.path, _PATTERN, f"{_PATTERN} is {period}; gpt-oss has 2.")


def fused_name(name: str) -> str:
    """Name the tensor that may hold q, k and v instead of three; any other keeps its name."""
    return re.sub(r"\.attn_[qkv]\.", ".attn_qkv.", name)


def _fused(expected: dict[str, tuple[int, ...]], name: str) -> tuple[int, ...] | None:
    names = [part for part in expected if part != name and fused_name(part) == name]
    if len(names) != len("qkv"):
        return None
    shapes = [expected.pop(part) for part in names]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _check_type(path: Path, name: str, type_id: int, report: Report) -> None:
    is_small = name.endswith(".bias") or "norm." in name or "sinks." in name
    if is_small and type_id != 0:
        kind = GGML_TYPES[type_id].name if type_id in GGML_TYPES else type_id
        report.find(path, name, f"{name} is of type {kind}; llama.cpp needs F32 there.")
