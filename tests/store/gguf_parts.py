"""GGUF files in odd forms, made of a real one byte by byte, as gguf-py takes minutes for them."""

import struct
from pathlib import Path

from gptoss_local.base.formats.gguf_file import TensorInfo, read_info

_ALIGNMENT = 32
_UINT16, _INT32 = 2, 5


def split(source: Path, folder: Path, n_parts: int) -> list[Path]:
    """Write a model in several files, `tune-00001-of-0000N.gguf`, as gguf-split does."""
    info, data = read_info(source), source.read_bytes()
    first = info.tensors[0].name.encode()
    keys = data[24 : data.index(struct.pack("<Q", len(first)) + first)]
    start = _padded(info.n_header_bytes)
    offsets = [*sorted(tensor.offset for tensor in info.tensors), len(data) - start]
    n_each = -(-len(info.tensors) // n_parts)
    paths = []
    for i in range(n_parts):
        header, body = b"", b""
        tensors = info.tensors[i * n_each : (i + 1) * n_each]
        for tensor in tensors:
            header += _tensor_info(tensor, len(body))
            end = offsets[offsets.index(tensor.offset) + 1]
            body += data[start + tensor.offset : start + end]
        numbers = _key("split.no", _UINT16, "H", i) + _key("split.count", _UINT16, "H", n_parts)
        numbers += _key("split.tensors.count", _INT32, "i", len(info.tensors))
        n_keys = 3 + (len(info.metadata) if i == 0 else 0)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_keys)
        head += (keys if i == 0 else b"") + numbers + header
        paths.append(folder / f"tune-{i + 1:05d}-of-{n_parts:05d}.gguf")
        paths[-1].write_bytes(head.ljust(_padded(len(head)), b"\0") + body)
    return paths


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _key(name: str, kind: int, code: str, value: int) -> bytes:
    return _text(name) + struct.pack(f"<I{code}", kind, value)


def _tensor_info(tensor: TensorInfo, offset: int) -> bytes:
    shape = tensor.shape[::-1]
    numbers = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _text(tensor.name) + numbers + struct.pack("<IQ", tensor.type_id, offset)


def as_ollama_wrote_it(source: Path, target: Path) -> Path:
    """The same file with the architecture's name in Ollama's own files."""
    data = source.read_bytes()
    n = read_info(source).n_header_bytes
    ours, theirs = b"\x07" + bytes(7) + b"gpt-oss", b"\x06" + bytes(7) + b"gptoss"
    head = data[:n].replace(ours, theirs, 1)
    target.write_bytes(head + bytes(n - len(head)) + data[n:])
    return target
