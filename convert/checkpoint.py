"""Reads which tensors a checkpoint of either layout holds, by their Hugging Face names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from convert.config import ModelConfig, is_original, read_config
from convert.header import SourceTensor, read_header
from convert.json_file import DOWNLOAD_HINT, read_json
from convert.layout import (
    INDEX_NAME,
    SINGLE_NAME,
    check_link,
    check_shard_name,
    find_weights,
    unindexed_files,
)
from gptoss_local.base.errors import ConvertError

DTYPES_NAME = "dtypes.json"

_GLOBAL_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.scale": "model.norm.weight",
    "unembedding.weight": "lm_head.weight",
}
_QKV = "self_attn.{}_proj."
_LAYER_NAMES = {
    "attn.norm.scale": "input_layernorm.weight",
    "attn.qkv.weight": f"{_QKV}weight",
    "attn.qkv.bias": f"{_QKV}bias",
    "attn.sinks": "self_attn.sinks",
    "attn.out.weight": "self_attn.o_proj.weight",
    "attn.out.bias": "self_attn.o_proj.bias",
    "mlp.norm.scale": "post_attention_layernorm.weight",
    "mlp.gate.weight": "mlp.router.weight",
    "mlp.gate.bias": "mlp.router.bias",
    "mlp.mlp1_weight.blocks": "mlp.experts.gate_up_proj_blocks",
    "mlp.mlp1_weight.scales": "mlp.experts.gate_up_proj_scales",
    "mlp.mlp1_weight": "mlp.experts.gate_up_proj.weight",  # bf16; no such name in HF's, see below
    "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
    "mlp.mlp2_weight.blocks": "mlp.experts.down_proj_blocks",
    "mlp.mlp2_weight.scales": "mlp.experts.down_proj_scales",
    "mlp.mlp2_weight": "mlp.experts.down_proj.weight",
    "mlp.mlp2_bias": "mlp.experts.down_proj_bias",
}
_STORED_AS = {"BF16": "BF16", "FP4": "U8", "UE8": "U8"}


def hugging_face_names(name: str) -> tuple[str, ...]:
    """Return a tensor's name, or the three of QKV, in Hugging Face's layout.

    bf16 experts are `..._proj.weight`, not `..._proj`, as they are not transposed. Unknown names
    stay as they are.
    """
    if name in _GLOBAL_NAMES:
        return (_GLOBAL_NAMES[name],)
    match = re.fullmatch(r"block\.(\d+)\.(.+)", name)
    if match is None or match[2] not in _LAYER_NAMES:
        return (name,)
    found = f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}"
    return tuple(found.format(part) for part in "qkv") if "{}" in found else (found,)


def to_hugging_face(
    tensors: Mapping[str, SourceTensor], config: ModelConfig
) -> dict[str, SourceTensor]:
    """Rename the tensors of a checkpoint, or of one of its shards, and cut QKV in three."""
    renamed: dict[str, SourceTensor] = {}
    for name, tensor in tensors.items():
        names = hugging_face_names(name)
        parts = [tensor] if len(names) == 1 else _cut_qkv(name, tensor, config)
        for new_name, part in zip(names, parts, strict=True):
            if new_name in renamed:
                raise ConvertError(f"{tensor.path} holds {new_name} under two names, also {name}.")
            renamed[new_name] = part
    return renamed


def _cut_qkv(name: str, tensor: SourceTensor, config: ModelConfig) -> list[SourceTensor]:
    rows = [config.n_q, config.n_kv, config.n_kv]
    if tensor.dtype != "BF16" or not tensor.shape or tensor.shape[0] != sum(rows):
        raise ConvertError(
            f"{name} in {tensor.path} is {tensor.dtype} {list(tensor.shape)} where config.json "
            f"calls for BF16 with {sum(rows)} rows.",
            hint="Check that config.json and the weights are of the same model.",
        )
    n_row_bytes = tensor.n_bytes // sum(rows)
    parts, offset = [], tensor.offset
    for n_rows in rows:
        n_bytes = n_rows * n_row_bytes
        shape = (n_rows, *tensor.shape[1:])
        parts.append(msgspec.structs.replace(tensor, shape=shape, offset=offset, n_bytes=n_bytes))
        offset += n_bytes
    return parts


def check_dtypes(folder: Path, tensors: Mapping[str, SourceTensor]) -> None:
    path = folder / DTYPES_NAME
    if not path.is_file():
        return
    check_link(path)
    for name, dtype in read_json(path, dict[str, str]).items():
        if name in tensors and _STORED_AS.get(dtype) != tensors[name].dtype:
            raise ConvertError(
                f"{path} says that {name} is {dtype}; in {tensors[name].path} it is "
                f"{tensors[name].dtype}.",
                hint="Download the checkpoint again; its files do not belong together.",
            )


# Programs that train a model wrap it, which shows as a prefix of all names; torch.compile, FSDP and
# gradient checkpointing add names anywhere.
_WRAPPERS = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_PREFIX = re.compile(r"(.*?)(?:model\.(?:layers\.\d+|embed_tokens|norm)|lm_head)\.")
# Some make a linear layer of each expert, here as Unsloth spells it: experts.gate_up_projs.N.
_SPELLINGS = (
    (re.compile(r"\.mlp\.router\.linear\."), ".mlp.router."),
    (
        re.compile(r"\.mlp\.experts\.(\d+)\.((?:gate_up|gate|up|down)_proj)\."),
        r".mlp.experts.\2s.\1.",
    ),
)


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def read_tensors(folder: Path) -> dict[str, SourceTensor]:
    """Read which tensors a checkpoint folder of either layout holds, in one file or many shards.

    `folder` holds the weights, with or without an index, or else a folder `original` that does.
    Raises ConvertError if a file is missing, truncated, not safetensors, or at odds with another.
    """
    folder = find_weights(folder)
    if (folder / SINGLE_NAME).is_file():
        return read_shard(folder / SINGLE_NAME)
    if (folder / INDEX_NAME).is_file():
        tensors: dict[str, SourceTensor] = {}
        for shard, names in sorted(names_by_shard(folder).items()):
            tensors |= read_shard(folder / shard, names)
        return tensors
    return merge_shards((path, read_shard(path)) for path in unindexed_files(folder))


def names_by_shard(folder: Path) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, shard in read_index(folder).items():
        names[shard].append(name)
    return names


def read_index(folder: Path) -> dict[str, str]:
    """Read from the index which shard, by its file name, holds each tensor; either layout."""
    check_link(folder / INDEX_NAME)
    weight_map = read_json(folder / INDEX_NAME, _Index).weight_map
    for shard in set(weight_map.values()):
        check_shard_name(folder, shard)
    if not is_original(folder):
        names = canonical_names(weight_map, str(folder / INDEX_NAME))
        return {names[name]: shard for name, shard in weight_map.items()}
    renamed: dict[str, str] = {}
    for name, shard in weight_map.items():
        for new_name in hugging_face_names(name):
            if new_name in renamed:
                raise ConvertError(f"{folder / INDEX_NAME} holds {new_name} under two names.")
            renamed[new_name] = shard
    return renamed


def read_shard(path: Path, names: Iterable[str] | None = None) -> dict[str, SourceTensor]:
    """Read the header of one file of a checkpoint, next to the config.json with its layout.

    `names` are the tensors that the index, if any, places there, by their Hugging Face names.
    Raises ConvertError if the file holds others, or is broken.
    """
    if not path.is_file():
        raise ConvertError(f"The shard {path} is missing.", hint="Finish the download first.")
    check_link(path)
    held = read_header(path)
    if is_original(path.parent):
        check_dtypes(path.parent, held)
        held = to_hugging_face(held, read_config(path.parent))
    else:
        new_names = canonical_names(held, str(path))
        held = {new_names[name]: tensor for name, tensor in held.items()}
    # A tensor that the index does not place here may also lie, with other values, elsewhere.
    expected = held.keys() if names is None else set(names)
    for name in sorted(expected ^ held.keys()):
        says = "does not hold" if name in expected else "holds"
        raise ConvertError(
            f"{path} {says} {name}, though {INDEX_NAME} says otherwise.", hint=DOWNLOAD_HINT
        )
    return held


def merge_shards(
    shards: Iterable[tuple[Path, dict[str, SourceTensor]]],
) -> dict[str, SourceTensor]:
    merged: dict[str, SourceTensor] = {}
    for path, tensors in shards:
        if twice := sorted(merged.keys() & tensors.keys()):
            raise ConvertError(
                f"{path} holds {twice[0]}, which is in {merged[twice[0]].path}, too.",
                hint=DOWNLOAD_HINT,
            )
        merged |= tensors
    return merged


def canonical_names(names: Iterable[str], where: str) -> dict[str, str]:
    """Map all tensor names of an index or a file to ours; a prefix goes if it is common to all."""
    bare = {name: _WRAPPERS.sub("", name) for name in names}
    prefixes = {match[1] for name in bare.values() if (match := _PREFIX.match(name))}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    found: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name, short in bare.items():
        new = short.removeprefix(prefix)
        for pattern, replacement in _SPELLINGS:
            new = pattern.sub(replacement, new)
        if new in taken:
            raise ConvertError(f"{where} holds {new} under two names, {taken[new]} and {name}.")
        found[name] = new
        taken[new] = name
    return found
