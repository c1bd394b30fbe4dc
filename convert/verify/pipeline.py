"""Joins the checks of a GGUF: structure, keys, vocabulary, data, and the checkpoint behind it."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gguf import GGML_QUANT_SIZES

from convert.config import ModelConfig
from convert.plan import SUMS_KEY
from convert.tokenizer import Tokenizer, read_tokenizer
from convert.verify.comparison import Comparison
from convert.verify.keys import check_keys, check_shapes
from convert.verify.report import Match, Report, TensorReport
from convert.verify.scan import Scan, Tally
from convert.verify.structure import FileTensor, Part, find_tensors, read_parts
from convert.verify.vocabulary import check_vocabulary, read_tokens
from gptoss_local.errors import ConvertError, ModelLoadError, ModelNotFoundError
from gptoss_local.gguf_file import TOKENS_KEY, read_array
from gptoss_local.o200k import VOCAB_SIZE
from gptoss_local.types import Progress


def verify_model(
    path: Path,
    *,
    against: Path | None = None,
    tokenizer: Path | None = None,
    arrivals: Iterable[Path] | None = None,
    on_used: Callable[[Path], None] | None = None,
    n_workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a GGUF of gpt-oss, reading every byte of its tensors once.

    Args:
        path: The file; of several, any.
        against: The checkpoint that it was made from, of either layout.
        tokenizer: As for `convert_checkpoint`. Looked at only if the model does not have gpt-oss's
            201,088 tokens, which are known.
        arrivals: As for `convert_checkpoint`: the safetensors files of `against` as they become
            complete.
        on_used: Called with each safetensors file that is no longer needed.
        n_workers: Threads; by default one per core, at most eight.
        progress: Told the bytes of tensor data read so far, from any thread.

    Returns:
        All that was found.

    Raises:
        ModelNotFoundError: There is no such file.
        ConvertError: The checkpoint is broken or cannot be read.
        VerifyError: The file changes while it is read.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"There is no file {path}.")
    report = Report([path])
    parts = read_parts(path, report)
    tensors = find_tensors(parts, report)
    config = _check_header(parts, against, tokenizer, report)
    start_s = time.monotonic()
    with Scan(tensors, n_workers or min(8, os.cpu_count() or 1), progress) as scan:
        if against is not None and config is not None:
            comparison = Comparison(parts[0].path, config, tensors, scan, report)
            comparison.run(against, arrivals, on_used)
        scan.scan_rest()
    report.seconds = time.monotonic() - start_s
    sums = _read_sums(parts, report)
    for name, tensor in tensors.items():
        report.tensors.append(_judge(tensor, scan.tallies[name], sums.get(name), report))
        report.n_bytes += scan.tallies[name].n_bytes
    _conclude(report, is_compared=against is not None)
    return report


def _check_header(
    parts: Sequence[Part], against: Path | None, tokenizer: Path | None, report: Report
) -> ModelConfig | None:
    """Check keys, shapes and vocabulary, if the file with the keys could be read."""
    if not parts or parts[0].path != report.files[0]:
        return None
    tokens = read_tokens(parts[0], report)
    expected: Tokenizer | None = None
    if tokens and len(tokens) != VOCAB_SIZE and (against or tokenizer):
        source = against or parts[0].path.parent
        try:
            expected = read_tokenizer(source, len(tokens), tokenizer)
        except ConvertError as error:  # it may be the file that has too few tokens
            report.find(parts[0].path, TOKENS_KEY, error.message)
    check_vocabulary(parts[0], tokens, expected, report)
    config = check_keys(parts[0], len(tokens), report)
    if config is not None:
        check_shapes(parts, config, report)
    return config


def _read_sums(parts: Sequence[Part], report: Report) -> dict[str, int]:
    """Read the checksums by tensor; files of other programs have none."""
    sums: dict[str, int] = {}
    for part in parts:
        if SUMS_KEY not in part.info.metadata:
            continue
        try:
            stated = read_array(part.path, SUMS_KEY)
        except ModelLoadError:  # it is no array
            stated = []
        if len(stated) != len(part.info.tensors):
            message = f"{SUMS_KEY} does not hold one checksum for each tensor."
            report.find(part.path, SUMS_KEY, message)
            continue
        sums |= {t.name: value for t, value in zip(part.info.tensors, stated, strict=True)}
    return sums


def _judge(
    tensor: FileTensor, tally: Tally, stated_sum: int | None, report: Report
) -> TensorReport:
    """Report what is wrong with one tensor, and all that is known of it."""
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
        match = "different" if found.n_beyond else "rounded" if found.n_blocks else "equal"
        worst_error = found.worst_error if found.worst_error < float("inf") else None
        if match == "different":
            message = f"{name} is not what the checkpoint holds: {_share(tensor, found.n_blocks)}"
            at = f"the first at byte {found.first} of its data"
            report.find(path, name, f"{message} differ, {at}; the worst error is {worst_error}.")
    return TensorReport(
        name,
        path.name,
        tensor.qtype.name,
        tensor.shape[::-1],
        tensor.n_bytes,
        is_sum_right,
        match,
        worst_error,
        found.n_blocks if found is not None else 0,
    )


def _share(tensor: FileTensor, n: int) -> str:
    block, n_block_bytes = GGML_QUANT_SIZES[tensor.qtype]
    return f"{n:,} of {tensor.n_bytes // n_block_bytes:,} {'blocks' if block > 1 else 'values'}"


def _conclude(report: Report, *, is_compared: bool) -> None:
    """Say what limits the proof, and what was left out of it."""
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
    n_skipped = sum(tensor.match is None for tensor in report.tensors)
    if is_compared and n_skipped:
        message = f"{n_skipped} tensors could not be compared with the checkpoint."
        report.find(report.files[0], "tensors", message)
