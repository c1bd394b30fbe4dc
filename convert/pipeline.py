"""Joins the converter: the shards, their plan, and a run, which the next one can continue."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from convert.adapter import Adapter, check_no_adapter
from convert.config import read_config
from convert.header import SourceTensor
from convert.io_errors import reading, writing
from convert.journal import Shard, read_journal
from convert.layout import find_weights
from convert.pieces import Rounding
from convert.plan import ConversionPlan, lay_out
from convert.run import ConversionRun
from convert.shards import arriving_shards, local_shards
from convert.tensor_map import (
    DenseType,
    ExpertType,
    check_dense,
    check_sources,
    keep_bf16,
    plan_names,
    plan_notes,
    rounding_notes,
)
from convert.tokenizer import read_tokenizer
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import SPLIT_NAME
from gptoss_local.base.types import Progress

_DENSE: DenseType = "q8_0"


class ConvertOptions(TypedDict, total=False):
    """The arguments that change the bytes of a GGUF.

    Attributes:
        dense: Type of embedding, attention and head weights: a name in `DENSE_TYPES`; "q8_0".
        experts: Type of experts that are floats or changed by an adapter; "mxfp4", which rounds.
        adapter: The folder of a LoRA adapter to merge.
        tokenizer: The vocabulary, if it is not in the checkpoint; see `read_tokenizer`.
        max_shard_bytes: Split the output into files no larger than this.
    """

    dense: DenseType
    experts: ExpertType
    adapter: Path | None
    tokenizer: Path | None
    max_shard_bytes: int | None


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    n_workers: int | None = None,
    delete_source: bool = False,
    progress: Progress | None = None,
    arrivals: Iterable[Path] | None = None,
    on_note: Callable[[str], None] | None = None,
    **options: Unpack[ConvertOptions],
) -> list[Path]:
    """Convert a gpt-oss checkpoint in the Hugging Face or the original layout to GGUF.

    A run that ends early, unless because of bad data, leaves its partial files and a journal next
    to the target; the same call continues it and makes the same bytes.

    Args:
        source: The folder with config.json and the safetensors files.
        target: The GGUF to write. An existing file is replaced, but only by a complete one.
        n_workers: Threads that convert; by default one per core, at most eight.
        delete_source: Delete each safetensors file as soon as nothing needs it any more.
        progress: Called with the bytes of tensor data written so far, from the converter's threads.
        arrivals: The safetensors files as they become complete, if they are still arriving; the
            other files must be there. Its errors propagate; the caller closes it.
        on_note: Called at the end with each note on the result for the user.
        **options: See `ConvertOptions`.

    Returns:
        The files written; the first is the one to load.
    """
    plan, shards, incoming = _prepare(source, target, arrivals, options)
    seen: dict[str, SourceTensor] = {}
    rounding = Rounding()
    incoming = _remember(incoming, seen)
    if delete_source:
        incoming = _refuse_links(source, shards, incoming)
    with ConversionRun(plan, delete_source=delete_source) as run:
        run.begin(shards)
        run.write(incoming, n_workers or min(8, os.cpu_count() or 1), progress, rounding)
        run.rename()
    if on_note is not None:
        for note in (*plan.notes, *rounding_notes(plan.tensors, seen), rounding.note()):
            if note:
                on_note(note)
    return [file.path for file in plan.files]


def plan_conversion(
    source: Path, target: Path, **options: Unpack[ConvertOptions]
) -> ConversionPlan:
    _check_target(target)
    with reading(source):
        shards = local_shards(source, read_journal(source, target))
        held = _tensors_of(shards)
        plan = _plan(source, target, held.keys(), shards, options, _adapter(source, options))
    notes = (*plan.notes, *rounding_notes(plan.tensors, held))
    return msgspec.structs.replace(plan, notes=notes)


def finished_shards(source: Path, target: Path) -> set[str]:
    """Return shards, deleted or not, that a continued conversion does not need downloaded."""
    return read_journal(source, target).finished_shards()


def _prepare(
    source: Path, target: Path, arrivals: Iterable[Path] | None, options: ConvertOptions
) -> tuple[ConversionPlan, list[Shard], Iterator[Shard]]:
    check_dense(options.get("dense", _DENSE))
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
    adapter = _adapter(source, options)
    with reading(source):
        plan = _plan(source, target, names, shards, options, adapter)
    return plan, shards, map(adapter.apply, incoming) if adapter else incoming


def _adapter(source: Path, options: ConvertOptions) -> Adapter | None:
    if (folder := options.get("adapter")) is not None:
        return Adapter(folder)
    place = find_weights(source)
    check_no_adapter([path.name for path in place.iterdir()], str(place))
    return None


def _plan(
    source: Path,
    target: Path,
    names: Collection[str],
    shards: list[Shard],
    options: ConvertOptions,
    adapter: Adapter | None,
) -> ConversionPlan:
    config = read_config(source)
    experts = options.get("experts", "mxfp4")
    tensors = plan_names(config, names, options.get("dense", _DENSE))
    tensors = adapter.match(tensors) if adapter else tensors
    tensors = keep_bf16(tensors) if experts == "bf16" else tensors
    # Tensors first: once their shapes are right, the config's numbers can be trusted.
    check_sources(tensors, _tensors_of(shards))
    plan = lay_out(
        source,
        target,
        config,
        read_tokenizer(source, config.vocab_size, options.get("tokenizer")),
        tensors,
        experts=experts,
        max_shard_bytes=options.get("max_shard_bytes"),
    )
    fingerprint = plan.fingerprint
    if adapter:
        fingerprint = hashlib.sha256((fingerprint + adapter.fingerprint).encode()).hexdigest()
    notes = (*plan.notes, *plan_notes(config, names))
    return msgspec.structs.replace(plan, notes=notes, fingerprint=fingerprint)


def _remember(incoming: Iterator[Shard], seen: dict[str, SourceTensor]) -> Iterator[Shard]:
    for shard in incoming:
        seen |= shard.tensors
        yield shard


def _tensors_of(shards: Iterable[Shard]) -> dict[str, SourceTensor]:
    return {name: tensor for shard in shards for name, tensor in shard.tensors.items()}


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise ConvertError(f"There is no folder {target.parent}.", hint="Make it first.")
    if (part := SPLIT_NAME.search(target.name)) and int(part[2]) > 1:
        raise ConvertError(
            f"{target.name} is the name of one file of several; llama.cpp would look for the rest.",
            hint="Leave out -00001-of-...; --max-shard-size makes several files.",
        )
    if target.is_dir():
        raise ConvertError(f"{target} is a folder.", hint="Name a file to write.")
    if os.path.lexists(target) and not _is_replaceable(target):
        raise ConvertError(
            f"{target} already exists and is not a GGUF file.",
            hint="Name another file to write, or move this one away.",
        )


def _is_replaceable(target: Path) -> bool:
    """Return whether a GGUF may replace a file: not a checkpoint's own, nor a device."""
    if not target.is_file():
        return target.is_symlink() and not target.exists()  # it points at nothing
    with target.open("rb") as file:
        return file.read(4) in (b"GGUF", b"")


def _refuse_links(
    source: Path, shards: Iterable[Shard], incoming: Iterator[Shard]
) -> Iterator[Shard]:
    """Refuse to delete shared files: now for known shards, and later for each that comes."""

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
