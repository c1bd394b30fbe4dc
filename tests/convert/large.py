"""Checkpoints large enough to be interrupted, with a vocabulary so small that planning is quick."""

import hashlib
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.convert.tiny import tiny_config, tiny_shapes, write_json, write_tiny

MEDIUM = {"vocab_size": 1 << 15, "hidden_size": 1024, "intermediate_size": 512}
MEDIUM |= {"num_local_experts": 32}
"""180 MB of weights."""


def write_large(
    folder: Path, sizes: dict[str, int] = MEDIUM, *, n_shards: int = 4, sparse: bool = False
) -> Path:
    """Write a one-layer checkpoint, dealt out over shards so that partners are in different ones.

    `sizes` are fields of config.json. Where it is `sparse`, all weights are zero and take no room.
    """
    write_tiny(folder)
    (folder / "model.safetensors").unlink()
    config = tiny_config() | sizes
    write_json(folder / "config.json", config)
    shapes = list(tiny_shapes(config).items())
    weight_map = {}
    for i in range(n_shards):
        name = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        part = dict(shapes[i::n_shards])
        write_shard(folder / name, part, seed=None if sparse else i)
        weight_map |= dict.fromkeys(part, name)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return folder


def write_shard(
    path: Path, shapes: dict[str, tuple[str, tuple[int, ...]]], *, seed: int | None
) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + prod(shape) * (1 if dtype == "U8" else 2)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    head = msgspec.json.encode(header)
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        if seed is not None:
            # Finite as bf16 around 1, and as bytes no MXFP4 scale that is NaN.
            random = np.random.default_rng(seed).integers(0x3E00, 0x4100, 1_000_003, np.uint16)
            random &= np.uint16(0xFFEF)
            while file.tell() < 8 + len(head) + end:
                random.tofile(file)
        file.truncate(8 + len(head) + end)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
