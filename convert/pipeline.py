"""Joins the parts of the converter: what is there, the plan for it, and the run that writes it.

The GGUF grows under another name and takes its own when complete, so a target is always either the
old file or the new one. What an interrupted run leaves is continued by the next.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from convert.checkpoint import SourceTensor
from convert.config import read_config
from convert.io_errors import reading, writing
from convert.journal import Shard, read_journal
from convert.plan import Plan, lay_out
from convert.run import Run
from convert.shards import arriving_shards, local_shards
from convert.tensor_map import DenseType, check_sources, plan_names
from convert.tokenizer import read_tokenizer
from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    dense: DenseType = "q8_0",
    n_workers: int | None = None,
    max_shard_bytes: int | None = None,
    delete_source: bool = False,
    progress: Progress | None = None,
    arrivals: Iterable[Path] | None = None,
) -> list[Path]:
    """Convert a gpt-oss checkpoint in the Hugging Face layout to GGUF.

    A run that anything but bad data ends leaves its partial files and a journal beside the target;
    the same call continues it and makes the same bytes.

    Args:
        source: The folder with config.json, the safetensors files and tokenizer.json.
        target: The GGUF to write. An existing file is replaced, but only by a complete one.
        dense: Type of embedding, attention and head weights.
        n_workers: Threads that convert; by default one per core, at most eight.
        max_shard_bytes: Split the output into files no larger than this.
        delete_source: Delete each safetensors file as soon as nothing needs it any more.
        progress: Told the bytes of tensor data written so far, from threads of the converter.
        arrivals: The safetensors files of `source` as they become complete, if they are still
            arriving; the other files must be there. What it raises comes through to the caller,
            who also closes it.

    Returns:
        The files written; the first is the one to load.

    Raises:
        ConvertError: The checkpoint is broken or not gpt-oss, or the target cannot be written.
    """
    _check_target(target)
    shards, names, incoming = _take_in(source, target, arrivals)
    if delete_source:
        incoming = _refuse_links(source, shards, incoming)
    with reading(source):
        plan = _plan(source, target, names, shards, dense, max_shard_bytes)
    with Run(plan, delete_source=delete_source) as run:
        run.begin(shards)
        run.write(incoming, n_workers or min(8, os.cpu_count() or 1), progress)
        run.rename()
    return [file.path for file in plan.files]


def plan_conversion(
    source: Path, target: Path, *, dense: DenseType = "q8_0", max_shard_bytes: int | None = None
) -> Plan:
    """Plan as `convert_checkpoint` does, and write nothing.

    Raises:
        ConvertError: The checkpoint is broken or not gpt-oss.
    """
    with reading(source):
        shards = local_shards(source, read_journal(source, target))
        names = _tensors_of(shards).keys()
        return _plan(source, target, names, shards, dense, max_shard_bytes)


def finished_shards(source: Path, target: Path) -> set[str]:
    """Name the shards that an interrupted conversion no longer needs, deleted or not.

    A download may leave them out before it hands `arrivals` to `convert_checkpoint`.
    """
    return read_journal(source, target).finished_shards()


def _take_in(
    source: Path, target: Path, arrivals: Iterable[Path] | None
) -> tuple[list[Shard], Collection[str], Iterator[Shard]]:
    """Return the shards known now, the names of all tensors, and all shards as they come in."""
    with writing(target):
        earlier = read_journal(source, target)
    if arrivals is not None:
        return [], *arriving_shards(source, arrivals, earlier)
    with reading(source):
        shards = local_shards(source, earlier)
    return shards, _tensors_of(shards).keys(), iter(shards)


def _plan(
    source: Path,
    target: Path,
    names: Collection[str],
    shards: Iterable[Shard],
    dense: DenseType,
    max_shard_bytes: int | None,
) -> Plan:
    config = read_config(source)
    tensors = plan_names(config, names, dense)
    # Tensors first: once their shapes are right, the config's numbers can be trusted.
    check_sources(tensors, _tensors_of(shards))
    tokenizer = read_tokenizer(source, config.vocab_size)
    return lay_out(source, target, config, tokenizer, tensors, max_shard_bytes)


def _tensors_of(shards: Iterable[Shard]) -> dict[str, SourceTensor]:
    return {name: tensor for shard in shards for name, tensor in shard.tensors.items()}


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise ConvertError(f"There is no folder {target.parent}.", hint="Make it first.")
    if target.is_dir():
        raise ConvertError(f"{target} is a folder.", hint="Name a file to write.")


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
