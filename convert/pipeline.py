"""Joins the converter: the shards, their plan, and a run, which the next one can continue."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from convert.adapter import Adapter, check_no_adapter, tokenizer_of
from convert.files import SourceTensor, writing
from convert.journal import Shard, read_journal
from convert.pieces import Rounding
from convert.plan import ConversionPlan, lay_out
from convert.run import ConversionRun
from convert.source import Source
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
from convert.tokenizer import TOKENIZER_HINT, read_tokenizer
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import SPLIT_NAME
from gptoss_local.base.types import Progress

_DENSE: DenseType = "q8_0"


class ConvertOptions(TypedDict, total=False):
    """The arguments that change a GGUF; `experts` is the type of floats and merged ones."""

    dense: DenseType
    experts: ExpertType
    adapter: Path | None
    tokenizer: Path | None
    max_shard_bytes: int | None


def convert_checkpoint(
    folder: Path,
    target: Path,
    *,
    n_workers: int | None = None,
    delete_source: bool = False,
    progress: Progress | None = None,
    arrivals: Iterable[Path] | None = None,
    on_note: Callable[[str], None] | None = None,
    **options: Unpack[ConvertOptions],
) -> list[Path]:
    """Convert a checkpoint in the Hugging Face or the original layout; return the files.

    A run that ends early, unless because of bad data, is continued by the same call. An existing
    target is replaced, but only by a complete file. `arrivals` are safetensors files as they become
    complete, while the other files are there. `progress` gets the bytes written, from any thread;
    `on_note` each note on the result.
    """
    check_dense(options.get("dense", _DENSE))
    _check_target(target)
    with writing(target):
        earlier = read_journal(folder, target)
    source = Source(folder)
    shards: list[Shard] = []
    names: Collection[str]
    if arrivals is None:
        shards = source.shards(earlier)
        names, incoming = _tensors_of(shards).keys(), iter(shards)
    else:
        names, incoming = source.arriving_shards(arrivals, earlier)
    adapter = _adapter(source, options)
    plan = _plan(source, target, names, shards, options, adapter)
    seen: dict[str, SourceTensor] = {}
    rounding = Rounding()
    if delete_source:
        _refuse_links(source, shards)
    with ConversionRun(plan, delete_source=delete_source) as run:
        run.begin(shards)
        ready = _ready(incoming, source, adapter, seen, delete_source=delete_source)
        run.write(ready, n_workers or min(8, os.cpu_count() or 1), progress, rounding)
        run.rename()
    if on_note is not None:
        for note in (*plan.notes, *rounding_notes(plan.tensors, seen), rounding.note()):
            if note:
                on_note(note)
    return [file.path for file in plan.files]


def plan_conversion(
    folder: Path, target: Path, **options: Unpack[ConvertOptions]
) -> ConversionPlan:
    _check_target(target)
    source = Source(folder)
    shards = source.shards(read_journal(folder, target))
    held = _tensors_of(shards)
    plan = _plan(source, target, held.keys(), shards, options, _adapter(source, options))
    notes = (*plan.notes, *rounding_notes(plan.tensors, held))
    return msgspec.structs.replace(plan, notes=notes)


def finished_shards(folder: Path, target: Path) -> set[str]:
    """Return shards, deleted or not, that a continued conversion does not need downloaded."""
    return read_journal(folder, target).finished_shards()


def _adapter(source: Source, options: ConvertOptions) -> Adapter | None:
    if (folder := options.get("adapter")) is not None:
        return Adapter(folder)
    check_no_adapter([path.name for path in source.folder.iterdir()], str(source.folder))
    return None


def _plan(
    source: Source,
    target: Path,
    names: Collection[str],
    shards: list[Shard],
    options: ConvertOptions,
    adapter: Adapter | None,
) -> ConversionPlan:
    config = source.config
    experts = options.get("experts", "mxfp4")
    tensors = plan_names(config, names, options.get("dense", _DENSE))
    tensors = adapter.match(tensors) if adapter else tensors
    tensors = keep_bf16(tensors) if experts == "bf16" else tensors
    # Tensors first: once their shapes are right, the config's numbers can be trusted.
    check_sources(tensors, _tensors_of(shards))
    own = tokenizer_of(options.get("adapter"))
    place = options.get("tokenizer") or own or source.own_tokenizer
    if place is None:
        missing = source.folder / "tokenizer.json"
        raise ConvertError(f"{missing} is missing.", hint=TOKENIZER_HINT)
    plan = lay_out(
        source.root,
        target,
        config,
        read_tokenizer(place, config.vocab_size),
        tensors,
        experts=experts,
        max_shard_bytes=options.get("max_shard_bytes"),
    )
    fingerprint = plan.fingerprint
    if adapter:
        fingerprint = hashlib.sha256((fingerprint + adapter.fingerprint).encode()).hexdigest()
    notes = (*plan.notes, *plan_notes(config, names))
    if adapter and adapter.base:
        notes = (*notes, f"the adapter says that it was trained on {adapter.base!a:.100}")
    if place == own != source.folder:
        notes = (*notes, f"the tokenizer is the adapter's, of {own}")
    return msgspec.structs.replace(plan, notes=notes, fingerprint=fingerprint)


def _ready(
    incoming: Iterable[Shard],
    source: Source,
    adapter: Adapter | None,
    seen: dict[str, SourceTensor],
    *,
    delete_source: bool,
) -> Iterator[Shard]:
    for shard in incoming:
        if delete_source:
            _refuse_links(source, [shard])
        seen |= shard.tensors
        yield adapter.apply(shard) if adapter else shard


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


def _refuse_links(source: Source, shards: Iterable[Shard]) -> None:
    for path in (source.root / shard.name for shard in shards):
        if path.is_symlink():
            raise ConvertError(
                f"{path} is a link, as in a cache that others share, and will not be deleted.",
                hint="Convert without --delete-source, or from a folder that holds the files.",
            )
