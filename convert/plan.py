"""The frozen plan of a conversion: output files with their headers, and where each tensor lies."""

import hashlib
import io
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUF_VERSION, GGUFValueType, GGUFWriter, Keys, WriterState

from convert.config import ModelConfig
from convert.metadata import ARCH, add_metadata
from convert.tensor_map import ExpertType, PlannedTensor
from convert.tokenizer import Tokenizer, add_tokenizer
from gptoss_local.base.errors import ConvertError
from gptoss_local.base.formats.gguf_file import unused_keys

SUMS_KEY = "gptoss.tensor_sums"
"""One u64 per tensor of the file, in its order: `convert.pieces.word_sum` of the tensor's data."""

SUMS_OF_KEY = "gptoss.tensor_sums_of"
"""The result of `describe_tensors` for the tensors of the sums.

It shows when another program has copied all keys to a file with other tensors.
"""


def describe_tensors(tensors: Iterable[tuple[str, tuple[int, ...], int]]) -> str:
    """Return the sha256 of names, shapes (slowest axis first) and types, in file order."""
    lines = (f"{name} {list(shape)} {int(type_id)}\n" for name, shape, type_id in tensors)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class OutputFile(msgspec.Struct, frozen=True):
    """One GGUF to write; `header` has zeros for `gptoss.tensor_sums`, from `sums_offset` on."""

    path: Path
    header: bytes
    sums_offset: int
    tensors: tuple[PlannedTensor, ...]
    offsets: tuple[int, ...]
    n_bytes: int

    @property
    def partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.partial")

    def header_with(self, sums: Sequence[int]) -> bytes:
        end = self.sums_offset + 8 * len(sums)
        values = struct.pack(f"<{len(sums)}Q", *sums)
        return self.header[: self.sums_offset] + values + self.header[end:]


class ConversionPlan(msgspec.Struct, frozen=True):
    """The files that a conversion will write; equal fingerprints mean equal bytes."""

    source: Path
    target: Path
    files: tuple[OutputFile, ...]
    fingerprint: str
    notes: tuple[str, ...] = ()

    @property
    def tensors(self) -> list[PlannedTensor]:
        return [tensor for file in self.files for tensor in file.tensors]

    @property
    def n_data_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)

    @property
    def n_file_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)


def lay_out(
    source: Path,
    target: Path,
    config: ModelConfig,
    tokenizer: Tokenizer,
    tensors: Sequence[PlannedTensor],
    *,
    experts: ExpertType,
    max_shard_bytes: int | None,
) -> ConversionPlan:
    """Lay tensors out in one file, or in several of at most `max_shard_bytes`.

    Several are named and keyed as llama.cpp's: `NAME-00001-of-00003.gguf`, all keys in the first.
    Source: `GGUFWriter.add_shard_kv_data` in gguf; gguf-split in llama.cpp.
    """
    writer = GGUFWriter(None, ARCH)
    _add_infos(writer, tensors)
    notes = add_metadata(writer, config, source, experts)
    add_tokenizer(writer, tokenizer)
    keys = writer.kv_data[0]
    notes += unused_keys({key: stated.value for key, stated in keys.items()})
    groups = [tuple(tensors)]
    if max_shard_bytes is not None:
        # The header of one file for all is longer than any part's.
        n_header = len(_header(keys, tensors, (0, 1, 0))[0])
        groups = _split(tensors, max_shard_bytes, n_header)
    files = []
    for i, group in enumerate(groups):
        split = None if len(groups) == 1 else (i, len(groups), len(tensors))
        header, sums_offset = _header(keys if i == 0 else {}, group, split)
        path = target
        if split is not None:
            stem = target.name.removesuffix(".gguf")
            path = target.with_name(f"{stem}-{i + 1:05d}-of-{len(groups):05d}.gguf")
        *offsets, end = accumulate(map(_padded, group), initial=len(header))
        files.append(OutputFile(path, header, sums_offset, group, tuple(offsets), end))
    digest = hashlib.sha256(str(source.resolve()).encode())
    for file in files:
        digest.update(file.header)
        digest.update(msgspec.json.encode(file.tensors))
    return ConversionPlan(source, target, tuple(files), digest.hexdigest(), tuple(notes))


def _split(
    tensors: Sequence[PlannedTensor], max_shard_bytes: int, n_header_bytes: int
) -> list[tuple[PlannedTensor, ...]]:
    room = max_shard_bytes - n_header_bytes
    groups: list[list[PlannedTensor]] = [[]]
    n_used = 0
    for tensor in tensors:
        n_padded = _padded(tensor)
        if n_padded > room:
            raise ConvertError(
                f"{tensor.name} and the header take {n_padded + n_header_bytes} bytes, more than "
                f"a file of {max_shard_bytes} bytes holds.",
                hint="Choose a larger --max-shard-size.",
            )
        if n_used + n_padded > room:
            groups.append([])
            n_used = 0
        groups[-1].append(tensor)
        n_used += n_padded
    return [tuple(group) for group in groups]


def _padded(tensor: PlannedTensor) -> int:
    n_bytes: int = GGUFWriter.ggml_pad(tensor.n_bytes, GGUF_DEFAULT_ALIGNMENT)
    return n_bytes


def _header(
    keys: dict[str, Any],
    tensors: Sequence[PlannedTensor],
    split: tuple[int, int, int] | None,
) -> tuple[bytes, int]:
    """Pack a file's header: the given keys, then the file's own, then the tensor infos.

    `split` has the number of this file, of files, and of tensors in all of them. Also returns where
    the zeros for `gptoss.tensor_sums` begin.
    """
    writer = GGUFWriter(None, ARCH)
    writer.kv_data[0] = dict(keys)
    if split is not None:
        writer.add_uint16(Keys.Split.LLM_KV_SPLIT_NO, split[0])
        writer.add_uint16(Keys.Split.LLM_KV_SPLIT_COUNT, split[1])
        writer.add_int32(Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT, split[2])
    writer.add_string(SUMS_OF_KEY, describe_tensors((t.name, t.shape, t.qtype) for t in tensors))
    zeros = [0] * len(tensors)
    writer.add_key_value(SUMS_KEY, zeros, GGUFValueType.ARRAY, GGUFValueType.UINT64)
    _add_infos(writer, tensors)
    buffer = io.BytesIO()
    buffer.write(struct.pack("<4sIQQ", b"GGUF", GGUF_VERSION, len(tensors), len(writer.kv_data[0])))
    writer.fout, writer.state = [buffer], WriterState.HEADER
    writer.write_kv_data_to_file()
    sums_offset = buffer.tell() - 8 * len(tensors)
    writer.write_ti_data_to_file()
    header = buffer.getvalue()
    n_padded = GGUFWriter.ggml_pad(len(header), GGUF_DEFAULT_ALIGNMENT)
    return header.ljust(n_padded, b"\0"), sums_offset


def _add_infos(writer: GGUFWriter, tensors: Sequence[PlannedTensor]) -> None:
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.qtype
        )
