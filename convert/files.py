"""Reads files of a checkpoint, which anyone may have written, and never one outside its folder."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, Protocol, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gptoss_local.base.errors import ConvertError, in_use
from gptoss_local.base.formats.gguf_file import other_content
from gptoss_local.base.validation import in_words

STORAGE: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "U8": np.dtype("u1"),
}
"""The numpy dtype that holds each (numpy has no bf16). Tensors of others can only be listed."""

FLOAT_DTYPES = ("BF16", "F16", "F32")
"""Convertible dtypes besides MXFP4 blocks; the usual one first."""

DOWNLOAD_HINT = "Download the checkpoint again; this file is incomplete or damaged."

MAX_JSON_BYTES = 10_000_000  # gpt-oss-120b's largest, the index, has 0.1 MB

T = TypeVar("T")
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Delta(Protocol):
    def rows(self, first: int, n: int) -> NDArray[np.float32]:
        """Compute rows as (n, n_in), with one output each; experts are below each other."""


class SourceTensor(msgspec.Struct, frozen=True):
    """The place of one tensor in a file; `delta` is added to its values as they are read."""

    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    n_bytes: int
    delta: Delta | None = None


class _HeaderEntry(msgspec.Struct, frozen=True):
    dtype: Annotated[str, msgspec.Meta(max_length=16)]
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[_Size, _Size]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConvertError(f"Reading {path} failed: {error}.") from error


@contextmanager
def writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConvertError(
            f"Writing {target} failed: {error}.",
            hint=f"{in_use(error)}Check free space and permissions of the target folder, then "
            "convert again.",
        ) from error


class FileReader:
    """Reads pieces of files, each into the buffer of the piece before."""

    def __init__(self) -> None:
        self._files: dict[Path, FileIO] = {}
        self._buffer = np.empty(0, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(self, path: Path, offset: int, n_bytes: int) -> NDArray[np.uint8]:
        if self._buffer.size < n_bytes:
            self._buffer = np.empty(n_bytes, np.uint8)
        data = self._buffer[:n_bytes]
        with reading(path):
            if path not in self._files:
                self._files[path] = FileIO(path)
            file, left = self._files[path], data.data
            file.seek(offset)
            while left:
                n_read = file.readinto(left)
                if not n_read:
                    raise ConvertError(
                        f"{path} became shorter while it was read.", hint=DOWNLOAD_HINT
                    )
                left = left[n_read:]
        return data


def check_link(path: Path) -> None:
    """Refuse a link out of its folder, unless into `blobs` next to `snapshots`, the hub's cache."""
    folder, file = path.parent.resolve(), path.resolve()
    allowed = [folder, *(p.parent / "blobs" for p in folder.parents if p.name == "snapshots")]
    if file.parent not in allowed:
        raise ConvertError(
            f"{path} is a link that leaves its folder, to {file}.",
            hint="Copy the file into the folder if it belongs to the checkpoint.",
        )


def read_bytes(path: Path, n_most: int = MAX_JSON_BYTES) -> bytes:
    check_link(path)
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):  # a pipe would be waited for
            raise ConvertError(f"{path} is not a file.", hint=DOWNLOAD_HINT)
        if found.st_size > n_most:
            raise ConvertError(
                f"{path} has an implausible size: it is {found.st_size:,} bytes long."
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConvertError(f"{path} is missing.", hint="Finish the download first.") from error
    except OSError as error:
        raise ConvertError(f"Reading {path} failed: {error}.") from error


def read_json(path: Path, kind: type[T] = dict[str, Any]) -> T:  # type: ignore[assignment]
    try:
        return _decode_json(read_bytes(path), kind)
    except ValueError as error:
        what = f"{path} is not valid: {in_words(error)}."
        raise ConvertError(what, hint=DOWNLOAD_HINT) from error


def read_header(path: Path) -> dict[str, SourceTensor]:
    """Read which tensors a safetensors file holds; strict like `SafeTensors::deserialize`."""
    check_link(path)
    n_file = path.stat().st_size
    with path.open("rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        if n_file < 8 or n_header > n_file - 8:
            file.seek(0)
            why = other_content(file.read(64)) or "is too short for its own header"
            raise ConvertError(f"{path} {why}.", hint=DOWNLOAD_HINT)
        if n_header > MAX_JSON_BYTES:
            raise ConvertError(
                f"{path} has a header of {n_header:,} bytes, more than any gpt-oss needs.",
                hint=DOWNLOAD_HINT,
            )
        header = file.read(n_header)
    try:
        fields = _decode_json(header, dict[str, msgspec.Raw])
        fields.pop("__metadata__", None)
        entries = {n: _entry(n, field) for n, field in fields.items()}
    except ValueError as error:
        raise ConvertError(
            f"{path} has no valid safetensors header: {error}.", hint=DOWNLOAD_HINT
        ) from error
    start = 8 + n_header
    _check_offsets(path, entries, n_file - start)
    return {
        name: SourceTensor(
            entry.dtype, entry.shape, path, start + entry.data_offsets[0], _n_bytes(entry)
        )
        for name, entry in entries.items()
    }


def _entry(name: str, field: msgspec.Raw) -> _HeaderEntry:
    """Read an entry; newer programs give MXFP4's scales, bytes, their own dtype."""
    entry = msgspec.json.decode(field, type=_HeaderEntry)
    is_scale = entry.dtype == "F8_E8M0" and name.endswith("scales")
    return msgspec.structs.replace(entry, dtype="U8") if is_scale else entry


def _n_bytes(entry: _HeaderEntry) -> int:
    return entry.data_offsets[1] - entry.data_offsets[0]


def _check_offsets(path: Path, entries: dict[str, _HeaderEntry], n_data: int) -> None:
    """Check that the tensors, in file order, tile the data without gap, overlap or rest."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        storage = STORAGE.get(entry.dtype)
        fits = storage is None or prod(entry.shape) * storage.itemsize == _n_bytes(entry)
        if entry.data_offsets[0] != end or _n_bytes(entry) < 0 or not fits:
            raise ConvertError(f"{path} misplaces the tensor {name}.", hint=DOWNLOAD_HINT)
        end = entry.data_offsets[1]
    if end != n_data:
        raise ConvertError(
            f"{path} holds {n_data} bytes of tensors where its header promises {end}.",
            hint=DOWNLOAD_HINT,
        )


def _decode_json(data: bytes, kind: type[T]) -> T:
    """Decode JSON without NaN, repeated keys or half characters, or raise ValueError."""
    try:
        data = data.removeprefix(BOM_UTF8)  # editors on Windows write it
        json.loads(data.decode(), object_pairs_hook=_refuse_repeats)  # msgspec keeps the last one
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"it names {key!r} twice")
        seen.add(key)
