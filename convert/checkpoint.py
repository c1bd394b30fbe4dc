"""Reads which tensors a checkpoint of either layout holds, by their Hugging Face names."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from convert.config import is_original, read_config
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
from convert.original import check_dtypes, hugging_face_names, to_hugging_face
from gptoss_local.errors import ConvertError

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
