"""The numbers that a GGUF states of its model: complete, possible, and true of its tensors.

What they make llama.cpp compute is compared with a checkpoint's config.json by
`convert.computation`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from gguf import GGUFValueType

from convert.computation import Numbers, differences, from_config, from_keys, key_of, oddities
from convert.config import ModelConfig, check_config
from convert.metadata import ARCH
from convert.rope import RopeConfig
from convert.tensor_map import gguf_shapes
from convert.verify.report import Report
from convert.verify.structure import ModelFile
from gptoss_local.errors import ConvertError
from gptoss_local.formats.ggml_types import GGML_TYPES
from gptoss_local.formats.gguf_file import GGUFInfo, read_array
from gptoss_local.validation import in_words

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
_PATTERN = f"{ARCH}.attention.sliding_window_pattern"


def check_keys(part: ModelFile, n_vocab: int, report: Report) -> ModelConfig | None:
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
    numbers = _computed(part)
    if numbers is not None:
        for name, odd, right in oddities(numbers):
            message = f"The keys state a {name} of {odd}; gpt-oss has {right}."
            report.find(path, "keys", message)
        if info.metadata.get(f"{ARCH}.rope.scaling.type") != "yarn":
            report.note(path, "its keys do not stretch the context by YaRN, as OpenAI's models do")
    try:
        stated = {"vocab_size": n_vocab, "rope": _values(info, _ROPE_KEYS)}
        config = msgspec.convert(_values(info, _KEYS) | stated, ModelConfig)
        if config.rope.rope_type == "none":
            config = msgspec.structs.replace(config, rope=RopeConfig(config.rope.rope_theta))
        check_config(config, path)
    except msgspec.ValidationError as error:
        report.find(path, "keys", f"The keys do not fit gpt-oss: {_in_our_words(error)}.")
        return None
    except ConvertError as error:
        report.find(path, "keys", error.message)
        return None
    if numbers is None:  # though `config` is right, so a key that is not part of it is broken
        message = "A key is not a number, so what the model computes is not known."
        report.find(path, "keys", message)
    return config


def check_shapes(parts: Sequence[ModelFile], config: ModelConfig, report: Report) -> None:
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


def compare_keys(part: ModelFile, config: ModelConfig, report: Report) -> None:
    """Check that a file's keys make llama.cpp compute what a checkpoint's config.json says.

    Args:
        part: The file.
        config: The checkpoint's, which is known to be right.
        report: Gets what is wrong.
    """
    if (ours := _computed(part)) is None:
        return
    for name, stated, right in differences(ours, from_config(config)):
        key = key_of(name)
        if key.endswith("*"):
            rope = {k: v for k, v in part.info.metadata.items() if k.startswith(key[:-1])}
            stated_keys = ", ".join(f"{k.removeprefix(key[:-1])} is {v}" for k, v in rope.items())
            message = (
                f"{key} make the {name} {stated}; config.json makes it {right}. Of these keys, "
                f"{stated_keys or 'none is there'}."
            )
        else:
            message = f"{key} is {stated}; the checkpoint's config.json states {right}."
        report.find(part.path, key, message)


def _computed(part: ModelFile) -> Numbers | None:
    """Derive what the file's keys compute; None if one is missing or broken: see `check_keys`."""
    metadata = dict(part.info.metadata)
    try:
        if _PATTERN in metadata and metadata[_PATTERN] is None:
            metadata[_PATTERN] = read_array(part.path, _PATTERN)
        return from_keys(metadata)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None


def _values(info: GGUFInfo, keys: dict[str, str]) -> dict[str, Any]:
    named = {field: f"{ARCH}.{key}" for field, key in keys.items()}
    return {f: info.metadata[key] for f, key in named.items() if key in info.metadata}


def _in_our_words(error: msgspec.ValidationError) -> str:
    message = in_words(error)
    for field, key in (_KEYS | _ROPE_KEYS).items():
        message = re.sub(rf"^('?)(rope\.)?{field}\b", rf"\1{ARCH}.{key}", message)
    return message


def _check_types(part: ModelFile, report: Report) -> None:
    """Check the type of each number, as llama.cpp takes no other."""
    for key in (*_KEYS.values(), *_SAME, *_ROPE_KEYS.values()):
        stated = part.info.key_types.get(f"{ARCH}.{key}")
        right = GGUFValueType.FLOAT32 if key in _FLOATS else GGUFValueType.UINT32
        if stated not in (None, right) and key != _ROPE_KEYS["rope_type"]:
            message = f"{ARCH}.{key} is not of type {right.name}, as llama.cpp needs it."
            report.find(part.path, f"{ARCH}.{key}", message)


def _check_same(part: ModelFile, report: Report) -> None:
    """Check keys that always equal another; llama.cpp does not need the second."""
    metadata = part.info.metadata
    for key, other in _SAME.items():
        stated, right = metadata.get(f"{ARCH}.{key}"), metadata.get(f"{ARCH}.{other}")
        if stated != right and not (key == "feed_forward_length" and stated is None):
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
    is_small = name.endswith(".bias") or "norm." in name or "sinks." in name
    if is_small and type_id != 0:
        kind = GGML_TYPES[type_id].name if type_id in GGML_TYPES else type_id
        report.find(path, name, f"{name} is of type {kind}; llama.cpp needs F32 there.")
