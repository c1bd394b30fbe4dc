"""The frozen plan of a conversion: every output file with its header, and where each tensor lies.

It follows from names and `config.json`. Headers are complete but for zeros in `gptoss.tensor_sums`.
"""

import hashlib
import io
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from gguf import (
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_VERSION,
    GGUFValueType,
    GGUFWriter,
    Keys,
    WriterState,
)

from convert.config import ModelConfig
from convert.metadata import ARCH, add_metadata
from convert.tensor_map import ExpertType, PlannedTensor
from convert.tokenizer import add_tokenizer
from convert.tokenizer_files import Tokenizer
from gptoss_local.base.errors import ConvertError

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
    """One GGUF to write.

    Attributes:
        header: Everything before the tensor data, with padding.
        sums_offset: Where in `header` the values of `gptoss.tensor_sums` begin.
        offsets: First byte of each tensor's data, counted from the start of the file.
    """

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
    """The files that a conversion will write.

    Attributes:
        target: The GGUF that the user named; `files` are other ones if there are several.
        fingerprint: Equal for two plans only if they make the same bytes of the same folder.
    """

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
    keys, n_keys, notes = _model_keys(config, tokenizer, tensors, source, experts)
    groups = [tuple(tensors)]
    if max_shard_bytes is not None:
        # The header of one file for all is longer than any part's.
        n_header = len(_header(keys, n_keys, tensors, (0, 1, 0))[0])
        groups = _split(tensors, max_shard_bytes, n_header)
    files = []
    for i, group in enumerate(groups):
        split = None if len(groups) == 1 else (i, len(groups), len(tensors))
        header, sums_offset = _header(
            keys if i == 0 else b"", n_keys if i == 0 else 0, group, split
        )
        path = target if split is None else _split_path(target, i, len(groups))
        *offsets, end = _offsets(len(header), group)
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
        n_padded = GGUFWriter.ggml_pad(tensor.n_bytes, GGUF_DEFAULT_ALIGNMENT)
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


def _split_path(target: Path, i: int, n: int) -> Path:
    return target.with_name(f"{target.name.removesuffix('.gguf')}-{i + 1:05d}-of-{n:05d}.gguf")


def _offsets(start: int, tensors: Sequence[PlannedTensor]) -> list[int]:
    offsets = [start]
    for tensor in tensors:
        offsets.append(offsets[-1] + GGUFWriter.ggml_pad(tensor.n_bytes, GGUF_DEFAULT_ALIGNMENT))
    return offsets


def _model_keys(
    config: ModelConfig,
    tokenizer: Tokenizer,
    tensors: Sequence[PlannedTensor],
    source: Path,
    experts: ExpertType,
) -> tuple[bytes, int, list[str]]:
    writer = GGUFWriter(None, ARCH)
    _add_infos(writer, tensors)
    notes = add_metadata(writer, config, source, experts)
    add_tokenizer(writer, tokenizer)
    return _pack_keys(writer), len(writer.kv_data[0]), notes


def _header(
    keys: bytes,
    n_keys: int,
    tensors: Sequence[PlannedTensor],
    split: tuple[int, int, int] | None,
) -> tuple[bytes, int]:
    """Pack a file's header: the given keys, then the file's own, then the tensor infos.

    `split` has the number of this file, of files, and of tensors in all of them. Also returns where
    the zeros for `gptoss.tensor_sums` begin.
    """
    own = GGUFWriter(None, ARCH)
    own.kv_data[0].clear()  # of the architecture, which is among the model's keys
    if split is not None:
        own.add_uint16(Keys.Split.LLM_KV_SPLIT_NO, split[0])
        own.add_uint16(Keys.Split.LLM_KV_SPLIT_COUNT, split[1])
        own.add_int32(Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT, split[2])
    own.add_string(SUMS_OF_KEY, describe_tensors((t.name, t.shape, t.qtype) for t in tensors))
    zeros = [0] * len(tensors)
    own.add_key_value(SUMS_KEY, zeros, GGUFValueType.ARRAY, GGUFValueType.UINT64)
    n_keys += len(own.kv_data[0])
    header = struct.pack("<4sIQQ", b"GGUF", GGUF_VERSION, len(tensors), n_keys) + keys
    header += _pack_keys(own)
    sums_offset = len(header) - 8 * len(tensors)
    _add_infos(own, tensors)
    header += _pack_infos(own)
    n_padded = GGUFWriter.ggml_pad(len(header), GGUF_DEFAULT_ALIGNMENT)
    return header.ljust(n_padded, b"\0"), sums_offset


def _add_infos(writer: GGUFWriter, tensors: Sequence[PlannedTensor]) -> None:
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.n_bytes, tensor.qtype
        )


def _pack_keys(writer: GGUFWriter) -> bytes:
    buffer = io.BytesIO()
    writer.fout, writer.state = [buffer], WriterState.HEADER
    writer.write_kv_data_to_file()
    writer.state = WriterState.NO_FILE
    return buffer.getvalue()


def _pack_infos(writer: GGUFWriter) -> bytes:
    buffer = io.BytesIO()
    writer.fout, writer.state = [buffer], WriterState.KV_DATA
    writer.write_ti_data_to_file()
    return buffer.getvalue()
