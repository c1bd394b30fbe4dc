"""Joins the parts of the converter: plan everything first, then write in one pass.

Nothing is written before the whole checkpoint has been checked. The GGUF grows under another name
and takes its own when complete, so a target is always either the old file or the new one.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from convert.checkpoint import CheckpointReader
from convert.config import ModelConfig, read_config
from convert.dense import check_finite, quantize_q8_0, widen_bf16
from convert.metadata import ARCH, add_metadata
from convert.mxfp4 import quantize_mxfp4, repack_blocks
from convert.tensor_map import DenseType, ExpertType, PlannedTensor, plan_tensors
from convert.tokenizer import Tokenizer, add_tokenizer, read_tokenizer
from gptoss_local.errors import ConvertError
from gptoss_local.types import Progress

MAX_HEADER_BYTES = 32 << 20  # keys, vocabulary and merges take 12 MB
PIECE_VALUES = 1 << 19  # converted at a time: 1 MB of bf16 stays in the cache of one core

_ROWS = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}


class _Plan(msgspec.Struct, frozen=True):
    source: Path
    reader: CheckpointReader
    config: ModelConfig
    tokenizer: Tokenizer
    tensors: list[PlannedTensor]
    experts: ExpertType

    @property
    def n_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    dense: DenseType = "q8_0",
    experts: ExpertType = "mxfp4",
    tokenizer: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Convert a gpt-oss checkpoint in the Hugging Face or the original layout to GGUF.

    Args:
        source: The folder with config.json and the safetensors files.
        target: The GGUF to write. An existing file is replaced, but only by a complete one.
        dense: Type of embedding, attention and head weights.
        experts: Type of experts that are bf16 in the checkpoint; "mxfp4" rounds them.
        tokenizer: Where the vocabulary is, if not in `source`; see `read_tokenizer`.
        progress: Told the bytes of tensor data written so far.

    Raises:
        ConvertError: The checkpoint is broken or not gpt-oss, or the target cannot be written.
    """
    try:
        plan = _make_plan(source, dense, experts, tokenizer)
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"Reading {source} failed: {error}.") from error
    partial = target.with_name(f"{target.name}.partial")
    try:
        _check_target(target, plan)
        _write(plan, partial, progress)
        os.replace(partial, target)
    except OSError as error:
        raise ConvertError(
            f"Writing {target} failed: {error}.",
            hint="Check free space and permissions of the target folder, then convert again.",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the error that led here says more
            partial.unlink(missing_ok=True)


def _make_plan(
    source: Path, dense: DenseType, experts: ExpertType, tokenizer: Path | None
) -> _Plan:
    reader = CheckpointReader(source)
    config = read_config(source)
    # Tensors first: once their shapes are right, the config's numbers can be trusted.
    tensors = plan_tensors(config, reader.tensors, dense, experts)
    return _Plan(
        source=source,
        reader=reader,
        config=config,
        tensors=tensors,
        tokenizer=read_tokenizer(source, config.vocab_size, tokenizer),
        experts=experts,
    )


def _check_target(target: Path, plan: _Plan) -> None:
    if not target.parent.is_dir():
        raise ConvertError(f"There is no folder {target.parent}.", hint="Make it first.")
    if target.is_dir():
        raise ConvertError(f"{target} is a folder.", hint="Name a file to write.")
    n_free = shutil.disk_usage(target.parent).free
    n_needed = plan.n_bytes + MAX_HEADER_BYTES
    if n_free < n_needed:
        raise ConvertError(
            f"The GGUF takes {n_needed / 1e9:.1f} GB, but {target.parent} has {n_free / 1e9:.1f} "
            "GB free.",
            hint="Free some space or choose a target on another disk.",
        )


def _write(plan: _Plan, path: Path, progress: Progress | None) -> None:
    writer = GGUFWriter(path, ARCH)
    for tensor in plan.tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.qtype
        )
    add_metadata(writer, plan.config, plan.source, plan.experts)
    add_tokenizer(writer, plan.tokenizer)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        _write_tensors(plan, writer, progress)
    finally:
        writer.close()


def _write_tensors(plan: _Plan, writer: GGUFWriter, progress: Progress | None) -> None:
    """Write all tensor data piece by piece; GGUFWriter itself would want each tensor whole."""
    if writer.fout is None:
        raise RuntimeError("the GGUF file must be open")
    file = writer.fout[0]
    writer.write_padding(file, file.tell())
    n_done, n_total = 0, plan.n_bytes
    for tensor in plan.tensors:
        for piece in _iter_pieces(plan.reader, tensor):
            file.write(piece.data)
            n_done += piece.nbytes
            if progress is not None:
                progress("convert", n_done, n_total)
        writer.write_padding(file, tensor.n_bytes, GGUF_DEFAULT_ALIGNMENT)
    file.flush()
    os.fsync(file.fileno())  # a rename may reach the disk before the data does


def _iter_pieces(reader: CheckpointReader, tensor: PlannedTensor) -> Iterator[NDArray[Any]]:
    """Make the data of one tensor, in order, in pieces of bounded size."""
    try:
        values = reader.read(tensor.source)
        if tensor.scales is not None:
            scales = reader.read(tensor.scales)
            for expert in range(tensor.shape[0]):
                rows = _ROWS[tensor.rows]
                yield repack_blocks(values[expert, rows], scales[expert, rows])
            return
        if tensor.transposed:
            values = values.swapaxes(1, 2)
        if tensor.rows != "all":
            values = values[:, _ROWS[tensor.rows]]
        for piece in _cut(values):
            yield _convert(piece, tensor.qtype)
    except ValueError as error:
        raise ConvertError(
            f"{tensor.source} in {reader.tensors[tensor.source].path} cannot become "
            f"{tensor.qtype.name}: {error}.",
            hint="The checkpoint is damaged; download it again.",
        ) from error


def _cut(values: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
    """Cut into flat pieces; matrices of experts, which may be views, into whole rows."""
    if values.ndim == 3:
        n_rows = max(1, PIECE_VALUES // values.shape[2])
        for expert in values:
            for start in range(0, len(expert), n_rows):
                yield expert[start : start + n_rows].reshape(-1)
        return
    flat = values.reshape(-1)
    for start in range(0, flat.size, PIECE_VALUES):
        yield flat[start : start + PIECE_VALUES]


def _convert(piece: NDArray[np.uint16], qtype: GGMLQuantizationType) -> NDArray[Any]:
    match qtype:
        case GGMLQuantizationType.Q8_0:
            return quantize_q8_0(piece)
        case GGMLQuantizationType.MXFP4:
            return quantize_mxfp4(piece)
    check_finite(piece)
    return piece if qtype == GGMLQuantizationType.BF16 else widen_bf16(piece)
