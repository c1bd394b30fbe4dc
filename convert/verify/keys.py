"""The numbers that a GGUF states of its model: complete, possible, and true of its tensors.

Source: llama-model.cpp, llama-context.cpp and openai-moe.cpp in llama.cpp, which read the keys.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from gguf import GGUFValueType

from convert.config import ModelConfig, RopeConfig, check_config, yarn_scale
from convert.metadata import ARCH
from convert.tensor_map import gguf_shapes
from convert.tokenizer import ID_KEYS, PRE_TOKENIZER, Tokenizer, find_faults
from convert.verify.report import Report
from convert.verify.structure import ModelFile
from gptoss_local.base.errors import ConvertError, ModelLoadError
from gptoss_local.base.formats.ggml_types import GGML_TYPES
from gptoss_local.base.formats.gguf_file import GGUFInfo, read_array, unused_keys
from gptoss_local.base.formats.o200k import (
    ENDS,
    MERGES_KEY,
    TOKENS_KEY,
    TYPES_KEY,
    is_harmony_sized,
    renamed_tokens,
)
from gptoss_local.base.validation import in_words

_FIXED: dict[str, list[object]] = {
    "tokenizer.ggml.model": ["gpt2"],
    "tokenizer.ggml.pre": [PRE_TOKENIZER],
    "tokenizer.ggml.add_bos_token": [False, None],  # a rendered harmony prompt is complete
    "tokenizer.ggml.add_eos_token": [False, None],
}
# gptoss does without these, as it counts on harmony alone; other programs may read text otherwise.
_HARMLESS: dict[str, list[object]] = {
    "tokenizer.ggml.pre": ["default", None],
    "tokenizer.ggml.add_bos_token": [True],
    "tokenizer.ggml.add_eos_token": [True],
}
_UNCHECKED = "not checked without the checkpoint"
_SPECIAL_IDS = {"bos": (199998,), "eos": ENDS}  # pad is not used here


def check_vocabulary(
    part: ModelFile,
    tokens: list[str],
    expected: Tokenizer | None,
    report: Report,
    *,
    is_compared: bool,
) -> None:
    """Check a model's first file; unless `is_compared`, harmless differences are only noted."""
    path, metadata = part.path, part.info.metadata
    for note in unused_keys(metadata):
        report.note(path, note)
    for key, right in _FIXED.items():
        stated = metadata.get(key)
        if stated in right:
            continue
        if stated in _HARMLESS.get(key, []) and not is_compared:
            report.note(path, f"{key} is {stated} where gpt-oss has {right[0]}")
        else:
            report.fault(path, key, f"is {stated} where gpt-oss needs {right[0]}")
    types, merges = read_list(part, TYPES_KEY, report), read_list(part, MERGES_KEY, report)
    ids = {kind: i for kind, key in ID_KEYS.items() if type(i := metadata.get(key)) is int}
    ours = Tokenizer(tokens, types, merges, ids, None)
    for key, fault in find_faults(ours):
        report.find(path, key, fault)
    if not is_harmony_sized(tokens):
        if expected is None:
            report.note(path, f"its {len(tokens):,} tokens are not gpt-oss's, and are {_UNCHECKED}")
        else:
            _compare(part, ours, expected, report)
        return
    renamed = renamed_tokens(tokens)
    theirs = renamed if expected is None else renamed_tokens(expected.tokens)
    for i in sorted(renamed | theirs):
        if renamed.get(i) != theirs.get(i):
            stated = tokens[i] if i < len(tokens) else None
            report.find(path, TOKENS_KEY, f"Token {i} is {stated!r}, not the checkpoint's.")
        elif expected is not None and types[i : i + 1] != expected.types[i : i + 1]:
            what = f"is {types[i : i + 1]} for token {i}, {tokens[i]!r}; the checkpoint has "
            report.fault(path, TYPES_KEY, f"{what}{expected.types[i]}")
    if renamed and expected is None:
        first = min(renamed)
        names = f"{len(renamed)} tokens, such as {first}, {renamed[first]!r}"
        report.note(path, f"the names of {names}, are {_UNCHECKED}")
    _check_special_ids(part, ids, expected, report)


def read_list(part: ModelFile, key: str, report: Report) -> list[Any]:
    try:
        return read_array(part.path, key)
    except ModelLoadError as error:
        report.fault(part.path, key, f"cannot be read: {error.message}")
        return []


def _check_special_ids(
    part: ModelFile, ids: dict[str, int], expected: Tokenizer | None, report: Report
) -> None:
    for kind, usual in _SPECIAL_IDS.items():
        key, stated = ID_KEYS[kind], ids.get(kind)
        right = None if expected is None else expected.special_ids.get(kind)
        if stated in usual or stated == right:
            continue
        if expected is not None:
            report.fault(part.path, key, f"is {stated}; the checkpoint has {right}")
        elif stated is None:
            report.note(part.path, f"{key} is missing; gptoss does not need it")
        else:
            report.note(part.path, f"{key}, {stated}, is {_UNCHECKED}")


def _compare(part: ModelFile, ours: Tokenizer, theirs: Tokenizer, report: Report) -> None:
    pairs = {
        TOKENS_KEY: (ours.tokens, theirs.tokens),
        TYPES_KEY: (ours.types, theirs.types),
        MERGES_KEY: (ours.merges, theirs.merges),
        "tokenizer.ggml's special ids": (ours.special_ids, theirs.special_ids),
    }
    for key, (stated, right) in pairs.items():
        if stated != right:
            report.fault(part.path, key, "is not that of the checkpoint's tokenizer")


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
    path, info = part.path, part.info
    if info.architecture != ARCH:
        named = f"The architecture is {info.architecture or 'not stated'}, not {ARCH}."
        report.find(path, "general.architecture", named)
        return None
    _check_single_keys(part, report)
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
    for name in (tensor.name for part in parts for tensor in part.info.tensors):
        stem, _, end = name.rpartition(".")
        if stem.endswith(".attn_qkv"):  # three in one, as llama.cpp takes them, too
            fused = [expected.pop(f"{stem[:-3]}{each}.{end}", (0,)) for each in "qkv"]
            expected[name] = (sum(each[0] for each in fused), *fused[0][1:])
        elif end in ("scale", "input_scale") and (weight := expected.get(f"{stem}.weight")):
            expected[name] = (weight[0] if len(weight) > 2 else 1,)  # of NVFP4
    for part in parts:
        for tensor in part.info.tensors:
            shape = expected.pop(tensor.name, None)
            if shape is None:
                message = f"gpt-oss has no tensor {tensor.name}, or has it once only."
                report.find(part.path, tensor.name, message)
                continue
            if shape != tensor.shape:
                ours, right = list(tensor.shape[::-1]), list(shape[::-1])
                what = f"is {ours} where the keys call for {right}"
                report.fault(part.path, tensor.name, what)
            is_small = re.search(r"\.bias$|norm\.|sinks\.", tensor.name)
            if is_small and tensor.type_id != 0:
                kind = GGML_TYPES.get(tensor.type_id)
                stated = kind.name if kind else tensor.type_id
                what = f"is of type {stated}; llama.cpp needs F32 there"
                report.fault(part.path, tensor.name, what)
    if expected:
        first = next(iter(expected))
        message = f"{len(expected)} tensors are missing, the first is {first}."
        report.find(parts[0].path, first, message)


def compare_keys(part: ModelFile, ours: ModelConfig, theirs: ModelConfig, report: Report) -> None:
    """Check that a file's keys give the computation of a checkpoint's config.json."""
    for field, key in _KEYS.items():
        stated, right = getattr(ours, field), getattr(theirs, field)
        if not math.isclose(stated, right, rel_tol=_TOLERANCE):
            what = f"is {stated}; the checkpoint's config.json states {right}"
            report.fault(part.path, f"{ARCH}.{key}", what)
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


def _check_single_keys(part: ModelFile, report: Report) -> None:
    path, metadata = part.path, part.info.metadata
    ours = (f"{ARCH}.{key}" for key in (*_KEYS.values(), *_SAME, *_ROPE_KEYS.values()))
    for key in (*ours, *ID_KEYS.values()):
        stated, name = part.info.key_types.get(key), key.removeprefix(f"{ARCH}.")
        right = GGUFValueType.FLOAT32 if name in _FLOATS else GGUFValueType.UINT32
        if stated not in (None, right) and name != _ROPE_KEYS["rope_type"]:
            report.fault(path, key, f"is not of type {right.name}, as llama.cpp needs it")
    for key, other in _SAME.items():  # if it is missing, llama.cpp takes the other for most
        value, same = metadata.get(f"{ARCH}.{key}"), metadata.get(f"{ARCH}.{other}")
        if value != same and (value is not None or key == "attention.value_length"):
            report.fault(path, f"{ARCH}.{key}", f"is {value}, but {ARCH}.{other} is {same}")
    for key, allowed in _BUILT_IN.items():
        value = metadata.get(f"{ARCH}.{key}", allowed[0])
        if value not in allowed:
            report.fault(path, f"{ARCH}.{key}", f"is {value}; gpt-oss has {allowed[0]}")
    period = metadata.get(_PATTERN, 2)
    if period is None:
        layers = [bool(each) for each in read_array(path, _PATTERN)]
        period = 2 if layers == [i % 2 == 0 for i in range(len(layers))] else layers
    if period != 2:
        report.fault(path, _PATTERN, f"is {period}; gpt-oss has 2")
