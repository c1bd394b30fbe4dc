"""JSON files of a checkpoint, read strictly: of bounded size, no key twice, no lone surrogates."""

import json
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import msgspec

from gptoss_local.base.errors import ConvertError

MAX_JSON_BYTES = 10_000_000  # gpt-oss-120b's largest, the index, has 0.1 MB
DOWNLOAD_HINT = "Download the checkpoint again; this file is incomplete or damaged."

T = TypeVar("T")


def read_json(path: Path, kind: type[T] = dict[str, Any]) -> T:  # type: ignore[assignment]
    """Read one JSON value of a known form, by default an object, or raise ConvertError."""
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):  # a pipe would be waited for
            raise ConvertError(f"{path} is not a file.", hint=DOWNLOAD_HINT)
        n_bytes = found.st_size
        if n_bytes > MAX_JSON_BYTES:
            raise ConvertError(f"{path} has an implausible size: it is {n_bytes:,} bytes long.")
        return _convert(path.read_bytes(), kind)
    except FileNotFoundError as error:
        raise ConvertError(f"{path} is missing.", hint="Finish the download first.") from error
    except ValueError as error:
        raise ConvertError(f"{path} is not valid: {error}.", hint=DOWNLOAD_HINT) from error


def _convert(data: bytes, kind: type[T]) -> T:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_without_repeats)
        json.dumps(value, ensure_ascii=False).encode()  # fails on half a character, such as \ud800
        return msgspec.convert(value, kind)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decode JSON without NaN or repeated keys, or raise ValueError.

    PERF: takes less memory than `read_json` for the long headers of safetensors.
    """
    try:
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


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_repeats(pairs)
    return dict(pairs)
