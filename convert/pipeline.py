"""Joins the parts of the converter: what is there, the plan for it, and the run that writes it.

The GGUF grows under another name and takes its own when complete, so a target is always either the
old file or the new one. What an interrupted run leaves is continued by the next.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypedDict

import msgspec

from convert.config import read_config
from convert.header import SourceTensor
from convert.io_errors import reading, writing
from convert.journal import Shard, read_journal
from convert.plan import Plan, lay_out
from convert.run import Run
from convert.shards import arriving_shards, local_shards
from convert.tensor_map import DenseType, ExpertType, check_sources, plan_names
from convert.tokenizer import read_tokenizer
from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress


class ConvertOptions(TypedDict, total=False):
    """Arguments of `convert_checkpoint` that change what is written, for those who pass them on."""

    dense: DenseType
    experts: ExpertType
    tokenizer: Path | None
    max_shard_bytes: int | None


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    dense: DenseType = "q8_0",
    experts: ExpertType = "mxfp4",
    tokenizer: Path | None = None,
    n_workers: int | None = None,
    max_shard_bytes: int | None = None,
    delete_source: bool = False,
    progress: Progress | None = None,
    arrivals: Iterable[Path] | None = None,
) -> list[Path]:
    """Convert a gpt-oss checkpoint in the Hugging Face or the original layout to GGUF.

    A run that anything but bad data ends leaves its partial files and a journal beside the target;
    the same call continues it and makes the same bytes.

    Args:
        source: The folder with config.json and the safetensors files.
        target: The GGUF to write. An existing file is replaced, but only by a complete one.
        dense: Type of embedding, attention and head weights.
        experts: Type of experts that are bf16 in the checkpoint; "mxfp4" rounds them.
        tokenizer: Where the vocabulary is, if not in `source`; see `read_tokenizer`.
        n_workers: Threads that convert; by default one per core, at most eight.
        max_shard_bytes: Split the output into files no larger than this.
        delete_source: Delete each safetensors file as soon as nothing needs it any more.
        progress: Told the bytes of tensor data written so far, from threads of the converter.
        arrivals: The safetensors files as they become complete, if they are still arriving; the
            other files must be there. What it raises comes through; the caller closes it.

    Returns:
        The files written; the first is the one to load.

    Raises:
        ConvertError: The checkpoint is broken or not gpt-oss, or the target cannot be written.
    """
    options = _Options(dense, experts, tokenizer, max_shard_bytes)
    plan, shards, incoming = _prepare(source, target, options, arrivals)
    if delete_source:
        incoming = _refuse_links(source, shards, incoming)
    with Run(plan, delete_source=delete_source) as run:
        run.begin(shards)
        run.write(incoming, n_workers or min(8, os.cpu_count() or 1), progress)
        run.rename()
    return [file.path for file in plan.files]


def plan_conversion(
    source: Path,
    target: Path,
    *,
    dense: DenseType = "q8_0",
    experts: ExpertType = "mxfp4",
    tokenizer: Path | None = None,
    max_shard_bytes: int | None = None,
) -> Plan:
    """Plan as `convert_checkpoint` does, and write nothing.

    Raises:
        ConvertError: The checkpoint is broken or not gpt-oss.
    """
    options = _Options(dense, experts, tokenizer, max_shard_bytes)
    with reading(source):
        shards = local_shards(source, read_journal(source, target))
        return _plan(source, target, options, _tensors_of(shards).keys(), shards)


def finished_shards(source: Path, target: Path) -> set[str]:
    """Name the shards that an interrupted conversion no longer needs, deleted or not.

    A download may leave them out before it hands `arrivals` to `convert_checkpoint`.
    """
    return read_journal(source, target).finished_shards()


class _Options(msgspec.Struct, frozen=True):
    dense: DenseType
    experts: ExpertType
    tokenizer: Path | None
    max_shard_bytes: int | None


def _prepare(
    source: Path, target: Path, options: _Options, arrivals: Iterable[Path] | None
) -> tuple[Plan, list[Shard], Iterator[Shard]]:
    """Return the plan, the shards known now, and all shards as they come in."""
    _check_target(target)
    with writing(target):
        earlier = read_journal(source, target)
    shards: list[Shard] = []
    names: Collection[str]
    if arrivals is None:
        with reading(source):
            shards = local_shards(source, earlier)
        names, incoming = _tensors_of(shards).keys(), iter(shards)
    else:
        names, incoming = arriving_shards(source, arrivals, earlier)
    with reading(source):
        return _plan(source, target, options, names, shards), shards, incoming


def _plan(
    source: Path, target: Path, options: _Options, names: Collection[str], shards: list[Shard]
) -> Plan:
    config = read_config(source)
    tensors = plan_names(config, names, options.dense, options.experts)
    # Tensors first: once their shapes are right, the config's numbers can be trusted.
    check_sources(tensors, _tensors_of(shards))
    return lay_out(
        source,
        target,
        config,
        read_tokenizer(source, config.vocab_size, options.tokenizer),
        tensors,
        experts=options.experts,
        max_shard_bytes=options.max_shard_bytes,
    )


def _tensors_of(shards: Iterable[Shard]) -> dict[str, SourceTensor]:
    return {name: tensor for shard in shards for name, tensor in shard.tensors.items()}


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise ConvertError(f"There is no folder {target.parent}.", hint="Make it first.")
    if target.is_dir():
        raise ConvertError(f"{target} is a folder.", hint="Name a file to write.")
    if os.path.lexists(target) and not _is_replaceable(target):
        raise ConvertError(
            f"{target} is there already, and is no GGUF.",
            hint="Name another file to write, or move this one away.",
        )


def _is_replaceable(target: Path) -> bool:
    """Say whether a file may be lost for a GGUF: not a checkpoint's own, nor a device."""
    if not target.is_file():
        return target.is_symlink() and not target.exists()  # it points at nothing
    with target.open("rb") as file:
        return file.read(4) in (b"GGUF", b"")


def _refuse_links(
    source: Path, shards: Iterable[Shard], incoming: Iterator[Shard]
) -> Iterator[Shard]:
    """Refuse to delete what is shared: now for the shards known, and later for those that come."""

    def check(shard: Shard) -> Shard:
        path = source / shard.name
        if path.is_symlink():
            raise ConvertError(
                f"{path} is a link, as in a cache that others share, and will not be deleted.",
                hint="Convert without --delete-source, or from a folder that holds the files.",
            )
        return shard

    for shard in shards:
        check(shard)
    return map(check, incoming)
