"""Reads the header of a GGUF file without numpy. Source: docs/gguf.md of ggml (version 3,
little-endian).

PERF: gguf-py makes a numpy view per token, seconds for 201,088; this takes a fraction of one.
"""

import functools
import math
import mmap
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import msgspec

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.ggml_types import FILE_TYPES, GGML_TYPES
from gptoss_local.base.formats.o200k import ENDS, FIRST_SPECIAL, MERGES_KEY, TOKENS_KEY, TYPES_KEY

T = TypeVar("T")

_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_LAYER_TYPES = {4: _UINT32, 5: _UINT32, 6: _FLOAT32}  # of arrays with a number for each layer
_ELEMENT_TYPES = {TOKENS_KEY: _STRING, MERGES_KEY: _STRING, TYPES_KEY: _INT32}  # llama-vocab.cpp
_LENGTH = struct.Struct("<Q")  # of a text
_ALIGNMENT = 32  # of GGUF, unless general.alignment says otherwise
_GUESSED = 1024  # a flag of general.file_type: a guess of llama.cpp
_MAX_COUNT = 1 << 20  # keys, or tensors: far above any model, low enough for the memory
_MAX_STRING_BYTES = 1 << 24  # chat templates are the longest, some 20 kB
_MAX_ARRAY = 1 << 24  # merges are the longest, 446,189
SPLIT_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # llama_split_path, llama.h


class TensorInfo(msgspec.Struct, frozen=True):
    """The entry of one tensor in the header."""

    name: str
    shape: tuple[int, ...]  # in elements, slowest axis first (the file has the reverse)
    type_id: int  # a number of ggml's `ggml_type`
    offset: int  # of the first byte, from the start of the tensor data


class GGUFInfo(msgspec.Struct, frozen=True):
    """The header of a GGUF."""

    metadata: dict[str, Any]  # arrays are None, or one number if it is the same for every layer
    key_types: dict[str, int]  # a number of `gguf_type` by key
    tensors: tuple[TensorInfo, ...]  # in the order of the header
    n_header_bytes: int  # without the padding up to the tensor data
    size_bytes: int  # of the whole file

    @property
    def tensor_spans(self) -> dict[str, tuple[int, int]]:
        start = self._data_start
        tensors = sorted(self.tensors, key=lambda tensor: tensor.offset)
        bounds = [*(start + tensor.offset for tensor in tensors), self.size_bytes]
        return {t.name: span for t, span in zip(tensors, pairwise(bounds), strict=True)}

    @property
    def n_described_bytes(self) -> int | None:
        """Return the end of the last tensor; None if one is of an unknown type."""
        end = 0
        for tensor in self.tensors:
            if (kind := GGML_TYPES.get(tensor.type_id)) is None:
                return None
            n_values = math.prod(tensor.shape)
            end = max(end, tensor.offset + -(-n_values // kind.n_values) * kind.n_bytes)
        return self._data_start + end

    @property
    def n_parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @property
    def quantization(self) -> str:
        """Return the mixture of types, or the most common type where the file names none."""
        stated = self.metadata.get("general.file_type")
        if isinstance(stated, int) and (name := FILE_TYPES.get(stated & ~_GUESSED)):
            return name
        sizes: Counter[int] = Counter()
        for tensor in self.tensors:
            sizes[tensor.type_id] += math.prod(tensor.shape)
        most = [
            GGML_TYPES[type_id].name for type_id, _ in sizes.most_common(1) if type_id in GGML_TYPES
        ]
        return most[0] if most else "unknown"

    @property
    def n_ctx_train(self) -> int:
        return self._size("context_length")

    @property
    def n_embd(self) -> int:
        return self._size("embedding_length")

    @property
    def _data_start(self) -> int:
        alignment = self.metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment <= 0:
            alignment = _ALIGNMENT
        return -(-self.n_header_bytes // alignment) * alignment

    def _size(self, key: str) -> int:
        value = self.metadata.get(f"{self.architecture}.{key}", 0)
        return value if isinstance(value, int) else 0


def read_info(path: Path) -> GGUFInfo:
    """Read the header of `path`; a second call for an unchanged file is free."""
    return _header(path)[0]


def split_files(path: Path) -> list[Path]:
    """Return all files of a split model, given any of them, or the only file.

    llama.cpp loads the first and finds the others by name, so they must not be renamed.
    """
    split = SPLIT_NAME.search(path.name)
    if split is None:
        return [path]
    stem, n = path.name.removesuffix(split[0]), int(split[2])
    return [path.with_name(f"{stem}-{i:05d}-of-{n:05d}.gguf") for i in range(1, n + 1)]


def read_tokens(path: Path) -> list[str]:
    """Read the token table in id order, in GPT-2's byte-to-unicode spelling."""
    return read_array(path, TOKENS_KEY)


def read_array(path: Path, key: str) -> list[Any]:
    """Read one array of the header. Raises ModelLoadError if there is none, or not llama.cpp's."""
    offset = _header(path)[1].get(key)
    if offset is None:
        raise ModelLoadError(f"{path.name} has no {key}", hint="Convert the model again.")
    kind, _ = _open(path, lambda data: _Cursor(data, offset).array_head())
    if kind != _ELEMENT_TYPES.get(key, kind):
        what = f"{path.name} has {key} of another type than llama.cpp reads"
        raise ModelLoadError(what, hint="Convert the model again.")
    return _open(path, lambda data: _Cursor(data, offset).array())


def array_size(path: Path, key: str) -> int:
    """Return how many items an array of the header has; 0 without one."""
    offset = _header(path)[1].get(key)
    return 0 if offset is None else _open(path, lambda data: _Cursor(data, offset).array_head()[1])


def unused_keys(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Say what a file states for other programs and gptoss does not use."""
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str) and "<|channel|>" not in template:
        yield "its chat template is not harmony's and is not used; gptoss writes harmony itself"
    end = metadata.get("tokenizer.ggml.eos_token_id")
    if isinstance(end, int) and end >= FIRST_SPECIAL and end not in ENDS:
        yield f"the token {end} ends a text elsewhere; here an answer ends as harmony's do"
    base, name = (metadata.get(f"general.base_model.0.{key}") for key in ("repo_url", "name"))
    if metadata.get("general.type") == "adapter" and (base or name):
        yield f"it says that it was trained on {(base or name)!a:.100}"
    if prefix := metadata.get("adapter.lora.prompt_prefix"):
        yield f"prompts do not begin with what it was trained to follow: {prefix!a:.80}"
    keys = [key for key in metadata if key.startswith("general.sampling.")]
    if keys:
        how = "gptoss create NAME --from MODEL -p KEY=VALUE"
        yield f"{', '.join(keys)}: not used here; a model gets defaults by `{how}`"


def _header(path: Path) -> tuple[GGUFInfo, dict[str, int]]:
    """Return the header and the offset of each array's element type."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
    if not S_ISREG(stat.st_mode):  # a pipe would be waited for
        raise ModelLoadError(f"cannot read {path}: it is not a file")
    return _read(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(path: Path, size_bytes: int, _mtime_ns: int) -> tuple[GGUFInfo, dict[str, int]]:
    """Read a header. Its size and time are arguments so that a changed file is read again."""
    return _open(path, lambda data: _parse(_Cursor(data, 0), size_bytes))


def _open(path: Path, read: Callable[[mmap.mmap], T]) -> T:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read(data)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error
    except (struct.error, ValueError, OverflowError) as error:
        raise ModelLoadError(
            f"{path.name} is not a complete GGUF file: {error}", hint="Convert or fetch it again."
        ) from error


def _parse(cursor: "_Cursor", size_bytes: int) -> tuple[GGUFInfo, dict[str, int]]:
    if cursor.take(4) != b"GGUF" or cursor.scalar("I") not in (2, 3):
        cursor.offset = 0
        start = cursor.take(min(64, size_bytes))
        raise ValueError(other_content(start) or "wrong magic or version")
    n_tensors, n_keys = cursor.scalar("Q"), cursor.scalar("Q")
    if max(n_tensors, n_keys) > _MAX_COUNT:
        raise ValueError(f"{n_tensors} tensors and {n_keys} keys are not plausible")
    metadata: dict[str, Any] = {}
    key_types: dict[str, int] = {}
    arrays: dict[str, int] = {}
    for _ in range(n_keys):
        key, value_type = cursor.string(errors="backslashreplace"), cursor.scalar("I")
        if key in metadata:
            raise ValueError(f"the key {key} is there twice")
        if value_type == _ARRAY:
            arrays[key] = cursor.offset
        key_types[key] = value_type
        metadata[key] = cursor.value(value_type)
    _unite_layers(cursor, metadata, key_types, arrays)
    tensors = tuple(cursor.tensor() for _ in range(n_tensors))
    return GGUFInfo(metadata, key_types, tensors, cursor.offset, size_bytes), arrays


def other_content(start: bytes) -> str:
    """Say what came instead of weights, from a file's first bytes; empty if that is not known."""
    if start.startswith(b"version https://git-lfs"):
        return "is a pointer of Git LFS; `git lfs pull` fetches the file itself"
    if re.match(rb"\s*<(!doctype|html|\?xml)", start, re.IGNORECASE):
        return "is a web page; of the hub's addresses, the one with /resolve/ has the file"
    return ""


def _unite_layers(
    cursor: "_Cursor", metadata: dict[str, Any], key_types: dict[str, int], arrays: dict[str, int]
) -> None:
    """Replace arrays of one number per layer by that number, if it is the same for all.

    Source: `get_key_or_arr` in llama-model-loader.cpp, which takes either.
    """
    arch = str(metadata.get("general.architecture", ""))
    n_layers, end = metadata.get(f"{arch}.block_count"), cursor.offset
    for key, offset in arrays.items():
        if not key.startswith(f"{arch}."):
            continue
        cursor.offset = offset
        element_type, n = cursor.array_head()
        if element_type not in _LAYER_TYPES or n != n_layers:
            continue
        cursor.offset = offset
        values = cursor.array()
        if len(set(values)) == 1:
            metadata[key], key_types[key] = values[0], _LAYER_TYPES[element_type]
    cursor.offset = end


class _Cursor:
    def __init__(self, data: mmap.mmap, offset: int) -> None:
        self._data = data
        self.offset = offset

    def take(self, n_bytes: int) -> bytes:
        end = self.offset + n_bytes
        if end > len(self._data):
            raise ValueError("the file ends inside its header")
        part = self._data[self.offset : end]
        self.offset = end
        return part

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self, *, errors: str = "replace") -> str:
        """Read text, of which not all may be UTF-8, as llama.cpp does not check it."""
        if (n_bytes := self.scalar("Q")) > _MAX_STRING_BYTES:
            raise ValueError(f"a text of {n_bytes} bytes is not plausible")
        return self.take(n_bytes).decode(errors=errors)

    def tensor(self) -> TensorInfo:
        name, n_dims = self.string(errors="backslashreplace"), self.scalar("I")
        if n_dims > 4:  # GGML_MAX_DIMS
            raise ValueError(f"{name} has {n_dims} dimensions")
        shape = tuple(self.scalar("Q") for _ in range(n_dims))[::-1]
        return TensorInfo(name, shape, self.scalar("I"), self.scalar("Q"))

    def value(self, value_type: int) -> Any:
        if value_type in _SCALARS:
            return self.scalar(_SCALARS[value_type])
        if value_type == _STRING:
            return self.string()
        if value_type == _ARRAY:
            return self._skip_array()
        raise ValueError(f"unknown value type {value_type}")

    def array(self) -> list[Any]:
        element_type, n = self.array_head()
        if element_type == _STRING:
            texts, data, offset, length_at = [], self._data, self.offset, _LENGTH.unpack_from
            for _ in range(n):  # PERF: 200,000 tokens in 0.06 s
                start = offset + 8
                offset = start + length_at(data, offset)[0]
                texts.append(data[start:offset].decode(errors="replace"))
            self.offset = offset
            self.take(0)  # the last one may end after the file
            return texts
        code = f"<{n}{_SCALARS[element_type]}"
        return list(struct.unpack(code, self.take(struct.calcsize(code))))

    def array_head(self) -> tuple[int, int]:
        element_type, n = self.scalar("I"), self.scalar("Q")
        if n > _MAX_ARRAY:
            raise ValueError(f"an array of {n} items is not plausible")
        if element_type != _STRING and element_type not in _SCALARS:
            raise ValueError(f"unknown array element type {element_type}")
        return element_type, n

    def _skip_array(self) -> None:
        element_type, n = self.array_head()
        if element_type in _SCALARS:
            self.take(n * struct.calcsize("<" + _SCALARS[element_type]))
            return
        data, offset, length_at = self._data, self.offset, _LENGTH.unpack_from
        for _ in range(n):  # PERF: 650,000 strings of a vocabulary in 0.1 s
            offset += 8 + length_at(data, offset)[0]
        self.offset = offset
