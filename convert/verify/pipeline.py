"""Joins the checks of a GGUF: structure, keys, vocabulary, data, and the original checkpoint."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from convert.adapter import Adapter, tokenizer_of
from convert.config import ModelConfig
from convert.files import SourceTensor
from convert.journal import JournalState, Shard
from convert.plan import SUMS_KEY, SUMS_OF_KEY, describe_tensors
from convert.run import Schedule
from convert.source import Source
from convert.tensor_map import check_sources, plan_names
from convert.tensor_types import TENSOR_TYPES
from convert.tokenizer import Tokenizer, read_tokenizer
from convert.verify.keys import check_keys, check_shapes, check_vocabulary, compare_keys, read_list
from convert.verify.report import Match, Report, TensorReport
from convert.verify.scan import Difference, Scan, TensorFindings, as_made
from convert.verify.structure import FileTensor, ModelFile, find_tensors, read_parts
from gptoss_local.base.errors import ConvertError, ModelLoadError, ModelNotFoundError
from gptoss_local.base.formats.gguf_file import read_array
from gptoss_local.base.formats.o200k import TOKENS_KEY
from gptoss_local.base.types import Progress

_MAX_RELATIVE_ERROR = 0.8  # types of 1.6 bits have 0.5; another matrix of the same size has 1.4


def verify_model(
    path: Path,
    *,
    against: Path | None = None,
    tokenizer: Path | None = None,
    adapter: Path | None = None,
    arrivals: Iterable[Path] | None = None,
    on_used: Callable[[Path], None] | None = None,
    n_workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a GGUF of gpt-oss (any, of several files), reading every byte of its tensors once.

    `against` is the checkpoint, maybe with an adapter, that it was made from; `on_used` is called
    with each of its files that is no longer needed. The rest is as for `convert_checkpoint`.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"There is no file {path}.")
    report = Report([path])
    parts = read_parts(path, report)
    tensors = find_tensors(parts, report)
    report.has_importance = any(
        key.startswith("quantize.imatrix.") for part in parts for key in part.info.metadata
    )
    source = Source(against) if against else None
    config = _check_header(parts, source, tokenizer or tokenizer_of(adapter), report)
    start_s = time.monotonic()
    with Scan(tensors, n_workers or min(8, os.cpu_count() or 1), progress) as scan:
        if source is not None and config is not None:
            compare_keys(parts[0], config, source.config, report)
            _compare(tensors, scan, source, arrivals, on_used, adapter)
        scan.scan_rest()
    report.seconds = time.monotonic() - start_s
    sums = _read_sums(parts, report)
    for name, tensor in tensors.items():
        report.tensors.append(_judge(tensor, scan.tallies[name], sums.get(name), report))
        report.n_bytes += scan.tallies[name].n_bytes
    _conclude(report, is_compared=source is not None)
    return report


def check_headers(path: Path) -> Report:
    report = Report([path])
    parts = read_parts(path, report)
    find_tensors(parts, report)
    _check_header(parts, None, None, report)
    return report


def _check_header(
    parts: Sequence[ModelFile], source: Source | None, tokenizer: Path | None, report: Report
) -> ModelConfig | None:
    if not parts or parts[0].path != report.files[0]:
        return None
    tokens = read_list(parts[0], TOKENS_KEY, report)
    expected: Tokenizer | None = None
    place = tokenizer or (source.own_tokenizer if source else None)  # OpenAI's layout has none
    if tokens and place:
        try:
            expected = read_tokenizer(place, len(tokens))
        except ConvertError as error:  # it may be the file that has too few tokens
            report.find(parts[0].path, TOKENS_KEY, error.message)
    check_vocabulary(parts[0], tokens, expected, report, is_compared=source is not None)
    config = check_keys(parts[0], len(tokens), report)
    if config is not None:
        check_shapes(parts, config, report)
    return config


def _compare(
    tensors: Mapping[str, FileTensor],
    scan: Scan,
    source: Source,
    arrivals: Iterable[Path] | None,
    on_used: Callable[[Path], None] | None,
    adapter: Path | None,
) -> None:
    names: Collection[str]
    incoming: Iterator[Shard]
    if arrivals is None:
        shards = source.shards(JournalState())
        names, incoming = [name for shard in shards for name in shard.tensors], iter(shards)
    else:
        names, incoming = source.arriving_shards(arrivals, JournalState())
    plan = plan_names(source.config, names, "bf16")
    if adapter is not None:
        merged = Adapter(adapter)
        plan, incoming = merged.match(plan), map(merged.apply, incoming)
    comparable = {t.name for t in plan if t.name in tensors and tensors[t.name].shape == t.shape}
    schedule = Schedule(plan)
    sources: dict[str, SourceTensor] = {}
    left: dict[Path, set[str]] = {}
    for shard in incoming:
        check_sources(plan, shard.tensors)
        sources |= shard.tensors
        left[source.root / shard.name] = set(schedule.made_from(shard.tensors))
        groups = schedule.arrive(shard.tensors)
        made = [[as_made(t, tensors[t.name]) for t in g if t.name in comparable] for g in groups]
        scan.compare([group for group in made if group], sources)
        done = {tensor.name for group in groups for tensor in group}
        left = {path: names - done for path, names in left.items()}
        for path in [path for path, names in left.items() if not names]:
            del left[path]
            if on_used is not None:
                on_used(path)
    if missing := schedule.missing(()):
        raise ConvertError(
            f"The shard with {min(missing)} never arrived.",
            hint="Finish the download, then verify again.",
        )


def _read_sums(parts: Sequence[ModelFile], report: Report) -> dict[str, int]:
    """Read the checksums by tensor; files of other programs have none, or copies of ours."""
    sums: dict[str, int] = {}
    for part in parts:
        if SUMS_KEY not in part.info.metadata:
            continue
        of = part.info.metadata.get(SUMS_OF_KEY)
        held = ((t.name, t.shape, t.type_id) for t in part.info.tensors)
        if of != describe_tensors(held):
            report.note(
                part.path,
                "its checksums are those of the file that another program made it from; they are "
                "not looked at",
            )
            continue
        try:
            stated = read_array(part.path, SUMS_KEY)
        except ModelLoadError:  # it is not an array
            stated = []
        if len(stated) != len(part.info.tensors):
            report.fault(part.path, SUMS_KEY, "does not hold one checksum for each tensor")
            continue
        sums |= {t.name: value for t, value in zip(part.info.tensors, stated, strict=True)}
    return sums


def _judge(
    tensor: FileTensor, tally: TensorFindings, stated_sum: int | None, report: Report
) -> TensorReport:
    name, path = tensor.name, tensor.path
    if tally.infinite_at is not None:
        what = f"holds a value or a scale that is not finite, at byte {tally.infinite_at}"
        report.fault(path, name, f"{what} of its data")
    if tally.n_bytes != tensor.n_bytes:
        what = f"was read only in part: {tally.n_bytes:,} of {tensor.n_bytes:,} bytes"
        report.fault(path, name, what)
    is_sum_right = None if stated_sum is None else stated_sum == tally.total
    if is_sum_right is False:
        report.find(path, name, f"The data of {name} does not have the checksum in the file.")
    match: Match | None = None
    worst_error: float | None = None
    if (found := tally.difference) is not None:
        match = _match(tensor, found, report)
        worst_error = found.worst_error if found.worst_error < float("inf") else None
        if match == "different":
            report.fault(path, name, f"is not what the checkpoint holds: {_how(tensor, found)}")
    return TensorReport(
        name,
        path.name,
        tensor.kind.name,
        tensor.shape[::-1],
        tensor.n_bytes,
        is_sum_right,
        match,
        worst_error,
        found.n_blocks if found is not None else 0,
        found.relative_error if match == "alike" and found is not None else None,
    )


def _match(tensor: FileTensor, found: Difference, report: Report) -> Match:
    """Judge how a tensor compares; if the rule of rounding is unknown, by its size alone."""
    if tensor.kind.name.lower() in TENSOR_TYPES and not found.n_beyond:
        return "rounded" if found.n_blocks else "equal"
    is_free = tensor.kind.name.lower() not in TENSOR_TYPES or report.has_importance
    return "alike" if is_free and found.relative_error < _MAX_RELATIVE_ERROR else "different"


def _how(tensor: FileTensor, found: Difference) -> str:
    worst = found.worst_error if math.isfinite(found.worst_error) else "not finite"
    if not found.n_blocks:
        if not math.isfinite(found.relative_error):
            return "its values are not finite, or too far from the checkpoint's to be compared"
        return f"its values are off by {found.relative_error:.0%}, the worst by {worst}"
    n_blocks = tensor.n_bytes // tensor.kind.n_bytes
    units = "blocks" if tensor.kind.n_values > 1 else "values"
    return (
        f"{found.n_blocks:,} of {n_blocks:,} {units} differ, the first "
        f"at byte {found.first} of its data; the worst error is {worst}"
    )


def _conclude(report: Report, *, is_compared: bool) -> None:
    n_unsummed = sum(tensor.is_sum_right is None for tensor in report.tensors)
    if n_unsummed:
        hint = "" if is_compared else "; use --against to prove its data"
        some = "" if n_unsummed == len(report.tensors) else f" for {n_unsummed} tensors"
        report.notes.append(f"no checksums in the file{some}{hint}")
    rounded = [tensor for tensor in report.tensors if tensor.match == "rounded"]
    if rounded:
        fewest = min(rounded, key=lambda tensor: tensor.n_different_blocks)
        report.notes.append(
            f"{len(rounded)} tensors are within the bound, but not rounded as ggml's reference "
            f"does it; the fewest blocks, {fewest.n_different_blocks:,}, in {fewest.name}"
        )
    _note_alike(report)
    unknown = [t for t in report.tensors if t.match is None and t.type.lower() not in TENSOR_TYPES]
    if unknown:
        names = ", ".join(sorted({tensor.type for tensor in unknown}))
        report.notes.append(
            f"{len(unknown)} tensors of types that are only checked for their sizes and scales: "
            f"{names}"
        )
    n_skipped = sum(tensor.match is None for tensor in report.tensors)
    if is_compared and n_skipped > len(unknown):
        message = f"{n_skipped} tensors could not be compared with the checkpoint."
        report.find(report.files[0], "tensors", message)


def _note_alike(report: Report) -> None:
    alike = [tensor for tensor in report.tensors if tensor.match == "alike"]
    if alike:
        worst = max(alike, key=lambda tensor: tensor.relative_error or 0.0)
        names = ", ".join(sorted({tensor.type for tensor in alike}))
        report.notes.append(
            f"{len(alike)} tensors cannot be proven, as another program chose how to round them "
            f"({names}); they resemble the checkpoint, {worst.name} least, with an error of "
            f"{worst.relative_error:.1%}"
        )
