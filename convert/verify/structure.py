"""Checks that the sizes, offsets, padding, length and parts of a GGUF all agree."""

from collections.abc import Iterator, Sequence
from math import prod
from os import SEEK_END
from pathlib import Path

import msgspec
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType, GGUFWriter, Keys

from convert.verify.report import Report
from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.ggml_types import GGML_TYPES, GgmlType
from gptoss_local.base.formats.gguf_file import GGUFInfo, TensorInfo, read_info, split_files

_UINT32 = GGUFValueType.UINT32
_MAX_ALIGNMENT = 1 << 20
_MAX_DIMENSION = 1 << 32


class ModelFile(msgspec.Struct, frozen=True):
    path: Path
    info: GGUFInfo


class FileTensor(msgspec.Struct, frozen=True):
    """One tensor of a GGUF; `offset` counts from the start of the file."""

    name: str
    path: Path
    kind: GgmlType
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


def read_parts(path: Path, report: Report) -> list[ModelFile]:
    """Read the headers of all files of a model, given any; report and leave out bad ones."""
    paths = split_files(path)
    paths = paths if path in paths else [path]
    missing = [each for each in paths if not each.is_file()]
    if missing:
        message = (
            f"{len(missing)} of {len(paths)} files are missing, the first is {missing[0].name}."
        )
        report.find(missing[0], "file", message)
    report.files = paths
    parts = []
    for each in sorted(set(paths).difference(missing)):
        try:
            parts.append(ModelFile(each, read_info(each)))
        except ModelLoadError as error:
            report.find(each, "header", f"{error.message}.")
    if len(parts) == len(paths):
        _check_split(parts, report)
    return parts


def find_tensors(parts: Sequence[ModelFile], report: Report) -> dict[str, FileTensor]:
    """Check the places of all tensors. Source: `gguf_init_from_reader` in ggml's gguf.cpp."""
    tensors: dict[str, FileTensor] = {}
    for part in parts:
        for tensor in _check_places(part, report):
            if tensor.name in tensors:
                report.find(part.path, tensor.name, f"The tensor {tensor.name} appears twice.")
            else:
                tensors[tensor.name] = tensor
    return tensors


def _check_split(parts: Sequence[ModelFile], report: Report) -> None:
    n_tensors = sum(len(part.info.tensors) for part in parts)
    expected = {Keys.Split.LLM_KV_SPLIT_COUNT: len(parts)}
    if len(parts) > 1:
        expected[Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT] = n_tensors
    for i, part in enumerate(parts):
        expected[Keys.Split.LLM_KV_SPLIT_NO] = i
        for key, right in expected.items():
            stated = part.info.metadata.get(key, None if len(parts) > 1 else right)
            if stated != right:
                report.find(part.path, key, f"{key} is {stated} where {right} is expected.")


def _check_places(part: ModelFile, report: Report) -> Iterator[FileTensor]:
    """Walk the tensors in file order: each must begin where the one before ends, padded."""
    path, info = part.path, part.info
    alignment = info.metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    is_typed = info.key_types.get("general.alignment", _UINT32) == _UINT32
    if not is_typed or not 8 <= alignment <= _MAX_ALIGNMENT or alignment.bit_count() > 1:
        what = f"is {alignment}; llama.cpp needs a power of two, of type UINT32"
        report.fault(path, "general.alignment", what)
        return
    start = GGUFWriter.ggml_pad(info.n_header_bytes, alignment)
    paddings = [(info.n_header_bytes, start)]
    n_left = info.size_bytes  # however the tensors overlap, no more than this is read
    expected = shift = 0
    for tensor in info.tensors:
        placed = _place(path, tensor, start, report)
        if placed is None:
            return  # its size is unknown, and so are all places after it
        if tensor.offset - expected != shift:  # one wrong size shifts all that follow
            shift = tensor.offset - expected
            how = "overlaps what is before it" if shift < 0 else "leaves a gap before it"
            at = f"its data begins at {tensor.offset}, not at {expected}"
            report.find(path, tensor.name, f"{tensor.name} {how}: {at}.")
        expected += GGUFWriter.ggml_pad(placed.n_bytes, alignment)
        paddings.append((placed.offset + placed.n_bytes, start + expected + shift))
        if placed.offset + placed.n_bytes <= info.size_bytes and placed.n_bytes <= n_left:
            n_left -= placed.n_bytes
            yield placed
    _check_length(path, info, start + expected + shift, report)
    _check_padding(path, paddings, report)


def _place(path: Path, tensor: TensorInfo, start: int, report: Report) -> FileTensor | None:
    kind = GGML_TYPES.get(tensor.type_id)
    if kind is None:
        report.find(path, tensor.name, f"{tensor.name} has the unknown type {tensor.type_id}.")
        return None
    shape = tensor.shape
    if not shape or not all(0 < n <= _MAX_DIMENSION for n in shape) or shape[-1] % kind.n_values:
        sizes = " x ".join(map(str, shape[::-1]))
        report.find(path, tensor.name, f"{tensor.name} has {sizes} values of type {kind.name}.")
        return None
    n_bytes = prod(shape) // kind.n_values * kind.n_bytes
    return FileTensor(tensor.name, path, kind, shape, start + tensor.offset, n_bytes)


def _check_length(path: Path, info: GGUFInfo, end: int, report: Report) -> None:
    n_file = info.size_bytes
    if n_file < end:
        report.find(
            path, "length", f"The file is cut off: {n_file:,} bytes where {end:,} are described."
        )
    elif n_file > end:
        tail = f"{n_file - end:,} bytes after the end of its tensors"
        if _is_zero(path, end):  # as padding to a whole sector, which nothing reads
            report.note(path, f"the file has {tail}, all of them zero")
        else:
            report.find(path, "length", f"The file has {tail}.")


def _is_zero(path: Path, first: int) -> bool:
    with path.open("rb") as file:
        file.seek(first)
        while piece := file.read(1 << 20):
            if any(piece):
                return False
    return True


def _check_padding(path: Path, paddings: Sequence[tuple[int, int]], report: Report) -> None:
    with path.open("rb") as file:
        n_file = file.seek(0, SEEK_END)
        for first, end in paddings:
            file.seek(min(first, n_file))
            if any(file.read(end - first)):
                report.find(
                    path, "padding", f"The padding from byte {first:,} to {end:,} is not zero."
                )
