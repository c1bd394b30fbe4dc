"""Joins the checks of a GGUF: structure, keys, vocabulary, data, and the original checkpoint."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from convert.adapter import Adapter
from convert.config import ModelConfig, read_config
from convert.header import SourceTensor
from convert.io_errors import reading
from convert.journal import JournalState, Shard
from convert.plan import SUMS_KEY, SUMS_OF_KEY, describe_tensors
from convert.schedule import Schedule
from convert.shards import arriving_shards, local_shards
from convert.tensor_map import PlannedTensor, check_sources, plan_names
from convert.tensor_types import TENSOR_TYPES
from convert.tokenizer import own_tokenizer, read_tokenizer
from convert.tokenizer_files import Tokenizer
from convert.verify.blocks import Difference
from convert.verify.keys import check_keys, check_shapes, compare_keys, fused_name
from convert.verify.report import Match, Report, TensorReport
from convert.verify.scan import Scan, TensorFindings, TensorPlace, as_made
from convert.verify.structure import FileTensor, ModelFile, find_tensors, read_parts
from convert.verify.vocabulary import check_vocabulary, read_tokens
from gptoss_local.base.errors import ConvertError, ModelLoadError, ModelNotFoundError
from gptoss_local.base.formats.gguf_file import read_array
from gptoss_local.base.formats.o200k import TOKENS_KEY
from gptoss_local.base.types import Progress


class Comparison:
    def __init__(
        self,
        part: ModelFile,
        config: ModelConfig,
        tensors: Mapping[str, FileTensor],
        scan: Scan,
        report: Report,
    ) -> None:
        self._part, self._config, self._tensors = part, config, tensors
        self._scan, self._report = scan, report
        self._made: dict[str, PlannedTensor] = {}
        self._targets: dict[str, TensorPlace] = {}

    def run(
        self,
        source: Path,
        arrivals: Iterable[Path] | None,
        on_used: Callable[[Path], None] | None,
        adapter: Path | None,
    ) -> None:
        """Compare all tensors that the file has.

        `on_used` is called when all tensors that need a shard have been compared.
        """
        with reading(source):
            config = read_config(source)
            compare_keys(self._part, self._config, config, self._report)
            names, incoming = _open_source(source, arrivals)
            plan = plan_names(config, names, "bf16")
        if adapter is not None:
            merged = Adapter(adapter)
            plan, incoming = merged.match(plan), map(merged.apply, incoming)
        for tensor in plan:
            self._match(tensor)
        schedule = Schedule(plan)
        sources: dict[str, SourceTensor] = {}
        done: set[str] = set()
        held: dict[Path, set[str]] = {}
        for shard in incoming:
            check_sources(plan, shard.tensors)
            sources |= shard.tensors
            groups = schedule.arrive(shard.tensors)
            self._compare(groups, sources)
            done.update(tensor.name for group in groups for tensor in group)
            held[source / shard.name] = set(schedule.made_from(shard.tensors))
            for path in [path for path, made in held.items() if made <= done]:
                del held[path]
                if on_used is not None:
                    on_used(path)
        if missing := schedule.missing(()):
            raise ConvertError(
                f"The shard with {min(missing)} never arrived.",
                hint="Finish the download, then verify again.",
            )

    def _match(self, planned: PlannedTensor) -> None:
        if (target := self._find(planned)) is not None:
            self._made[planned.name] = as_made(planned, target.tensor)
            self._targets[planned.name] = target

    def _find(self, planned: PlannedTensor) -> TensorPlace | None:
        tensor = self._tensors.get(planned.name)
        if tensor is not None:
            return TensorPlace(tensor) if tensor.shape == planned.shape else None
        fused = self._tensors.get(fused_name(planned.name))
        n_q, n_kv = self._config.n_q, self._config.n_kv
        if fused is None or fused.shape != (n_q + 2 * n_kv, *planned.shape[1:]):
            return None
        first_row, n_rows = {"q": (0, n_q), "k": (n_q, n_kv), "v": (n_q + n_kv, n_kv)}[
            planned.name.split(".attn_")[1][0]
        ]
        if planned.shape[0] != n_rows:
            return None
        share = Fraction(n_rows, fused.shape[0])
        return TensorPlace(fused, fused.n_bytes // fused.shape[0] * first_row, share)

    def _compare(
        self, groups: Iterable[Sequence[PlannedTensor]], sources: Mapping[str, SourceTensor]
    ) -> None:
        named = ([self._made[t.name] for t in group if t.name in self._made] for group in groups)
        self._scan.compare([group for group in named if group], self._targets, sources)


def _open_source(
    source: Path, arrivals: Iterable[Path] | None
) -> tuple[Collection[str], Iterator[Shard]]:
    if arrivals is not None:
        return arriving_shards(source, arrivals, JournalState())
    shards = local_shards(source, JournalState())
    return {name for shard in shards for name in shard.tensors}, iter(shards)


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
    """Check a GGUF of gpt-oss, reading every byte of its tensors once.

    Args:
        path: The file; of several, any.
        against: The checkpoint that it was made from, of either layout.
        tokenizer: As for `convert_checkpoint`.
        adapter: The folder of the adapter that was merged into `against`.
        arrivals: As for `convert_checkpoint`: the safetensors files of `against`.
        on_used: Called with each safetensors file that is no longer needed.
        n_workers: Threads; by default one per core, at most eight.
        progress: Called with the bytes of tensor data read so far, from any thread.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"There is no file {path}.")
    report = Report([path])
    parts = read_parts(path, report)
    tensors = find_tensors(parts, report)
    report.has_importance = any(
        key.startswith("quantize.imatrix.") for part in parts for key in part.info.metadata
    )
    config = _check_header(parts, against, tokenizer, report)
    start_s = time.monotonic()
    with Scan(tensors, n_workers or min(8, os.cpu_count() or 1), progress) as scan:
        if against is not None and config is not None:
            comparison = Comparison(parts[0], config, tensors, scan, report)
            comparison.run(against, arrivals, on_used, adapter)
        scan.scan_rest()
    report.seconds = time.monotonic() - start_s
    sums = _read_sums(parts, report)
    for name, tensor in tensors.items():
        report.tensors.append(_judge(tensor, scan.tallies[name], sums.get(name), report))
        report.n_bytes += scan.tallies[name].n_bytes
    _conclude(report, is_compared=against is not None)
    return report


def _check_header(
    parts: Sequence[ModelFile], against: Path | None, tokenizer: Path | None, report: Report
) -> ModelConfig | None:
    if not parts or parts[0].path != report.files[0]:
        return None
    tokens = read_tokens(parts[0], report)
    expected: Tokenizer | None = None
    if tokens and (against or tokenizer):
        source = against or parts[0].path.parent
        try:
            if tokenizer or own_tokenizer(source):  # OpenAI's layout has none
                expected = read_tokenizer(source, len(tokens), tokenizer)
        except ConvertError as error:  # it may be the file that has too few tokens
            report.find(parts[0].path, TOKENS_KEY, error.message)
    is_compared = against is not None
    check_vocabulary(parts[0], tokens, expected, report, is_compared=is_compared)
    config = check_keys(parts[0], len(tokens), report)
    if config is not None:
        check_shapes(parts, config, report)
    return config


def _read_sums(parts: Sequence[ModelFile], report: Report) -> dict[str, int]:
    """Read the checksums by tensor; files of other programs have none, or copies of ours."""
    sums: dict[str, int] = {}
    for part in parts:
        if SUMS_KEY not in part.info.metadata:
            continue
        of = part.info.metadata.get(SUMS_OF_KEY)
        held = ((t.name, t.shape, t.type_id) for t in part.info.tensors)
        if of is not None and of != describe_tensors(held):
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
            message = f"{SUMS_KEY} does not hold one checksum for each tensor."
            report.find(part.path, SUMS_KEY, message)
            continue
        sums |= {t.name: value for t, value in zip(part.info.tensors, stated, strict=True)}
    return sums


def _judge(
    tensor: FileTensor, tally: TensorFindings, stated_sum: int | None, report: Report
) -> TensorReport:
    name, path = tensor.name, tensor.path
    if tally.infinite_at is not None:
        message = f"{name} holds a value or a scale that is not finite, at byte {tally.infinite_at}"
        report.find(path, name, f"{message} of its data.")
    if tally.n_bytes != tensor.n_bytes:
        message = f"{name} was read only in part: {tally.n_bytes:,} of {tensor.n_bytes:,} bytes."
        report.find(path, name, message)
    is_sum_right = None if stated_sum is None else stated_sum == tally.total
    if is_sum_right is False:
        report.find(path, name, f"The data of {name} does not have the checksum in the file.")
    match: Match | None = None
    worst_error: float | None = None
    if (found := tally.difference) is not None:
        match = _match(tensor, found, report)
        worst_error = found.worst_error if found.worst_error < float("inf") else None
        if match == "different":
            report.find(
                path, name, f"{name} is not what the checkpoint holds: {_how(tensor, found)}"
            )
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
            return "its values are not finite, or too far from the checkpoint's to be compared."
        return f"its values are off by {found.relative_error:.0%}, the worst by {worst}."
    n_blocks = tensor.n_bytes // tensor.kind.n_bytes
    units = "blocks" if tensor.kind.n_values > 1 else "values"
    return (
        f"{found.n_blocks:,} of {n_blocks:,} {units} differ, the first "
        f"at byte {found.first} of its data; the worst error is {worst}."
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
