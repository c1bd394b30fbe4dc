"""Pack a trained checkpoint: `python -m bench.nano.export CHECKPOINT_DIR nano.xz`.

The trainer leaves `nano.json` (`{"config": ..., "used_ids": [...]}`) and `nano.safetensors`, which
holds the tensors of the Hugging Face checkpoint in their final bits (uint16 for bf16, uint8 for
MXFP4), the vocabulary matrices for the used tokens only, and in float32 what makes their other
rows. Two things are decided here: how the latter are rounded, and how sharp the model is. A model
that is trained on drawn data is as unsure as the draws were; SHARPNESS times the weight of its
final norm, which is exact, makes all logits so many times as large. So the likeliest token stays
the likeliest one, and temperature 1 gives what temperature 1 / SHARPNESS would have given.
"""

import json
import lzma
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from convert.tensor_types import BF16
from gptoss_local.models.nano.compact import CODED, N_BITS

INT16_MAX = 32767
FINAL_NORM = "model.norm.weight"
SHARPNESS = 2.0  # a power of two: times it, no bf16 value is rounded


def export(checkpoint_dir: Path) -> bytes:
    """Read what the trainer left and pack it."""
    description = json.loads((checkpoint_dir / "nano.json").read_bytes())
    tensors = load_file(checkpoint_dir / "nano.safetensors")
    tensors[FINAL_NORM] = sharpen(tensors[FINAL_NORM])
    return pack(tensors, description["config"], description["used_ids"])


def sharpen(norm: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Multiply the final norm's weight, in the bits of bf16, by SHARPNESS."""
    return BF16.quantize_blocks(
        (norm.astype(np.uint32) << 16).view(np.float32) * np.float32(SHARPNESS)
    )


def pack(
    tensors: Mapping[str, NDArray[Any]], config: dict[str, Any], used_ids: Sequence[int]
) -> bytes:
    """Make the bytes of `nano.xz`.

    Args:
        tensors: By name; see the module.
        config: The content of the checkpoint's `config.json`.
        used_ids: The tokens whose rows the vocabulary matrices hold, ascending.

    Raises:
        ValueError: The tensors do not fit together.
    """
    _check(tensors, config, used_ids)
    exponents: dict[str, int] = {}
    final = {"used_ids_delta": np.diff(np.asarray(used_ids, np.int64), prepend=0).astype("<u4")}
    for name, values in tensors.items():
        if values.dtype == np.float32:
            stem = name.rpartition("_")[0]
            exponents[name] = fixed_point_exponent(
                tensors[f"{stem}_map"], tensors[f"{stem}_shared"]
            )
            final[name] = np.rint(np.ldexp(values, exponents[name])).astype(np.int16)
        else:
            final[name] = values
    return _compress(final, exponents, config)


def fixed_point_exponent(*arrays: NDArray[np.float32]) -> int:
    """The largest k for which all values times 2**k, rounded, fit int16."""
    largest = max(float(np.abs(array).max()) for array in arrays)
    if largest == 0:
        return 0
    k = 15 - math.frexp(largest)[1]  # makes the largest one 2**14 .. 2**15
    return k if round(math.ldexp(largest, k)) <= INT16_MAX else k - 1


def _check(
    tensors: Mapping[str, NDArray[Any]], config: dict[str, Any], used_ids: Sequence[int]
) -> None:
    if any(a >= b for a, b in pairwise(used_ids)):
        raise ValueError("used_ids must ascend")
    if not 0 <= used_ids[0] <= used_ids[-1] < config["vocab_size"]:
        raise ValueError("used_ids are not all in the vocabulary")
    d = config["hidden_size"]
    for name, stem in CODED.items():
        expected = {
            name: ("uint16", (len(used_ids), d)),
            f"{stem}_map": ("float32", (N_BITS, d)),
            f"{stem}_shared": ("float32", (d,)),
        }
        for part, (dtype, shape) in expected.items():
            found = (str(tensors[part].dtype), tensors[part].shape)
            if found != (dtype, shape):
                raise ValueError(f"{part} is {found}, expected {(dtype, shape)}")
    for name, values in tensors.items():
        if values.dtype == np.float32 and not np.isfinite(values).all():
            raise ValueError(f"{name} has values that are not finite")
        if values.dtype == np.uint16 and ((values & 0x7F80) == 0x7F80).any():
            raise ValueError(f"{name} has bf16 values that are not finite")


def _compress(
    tensors: Mapping[str, NDArray[Any]], exponents: Mapping[str, int], config: dict[str, Any]
) -> bytes:
    entries: list[dict[str, Any]] = []
    chunks: list[bytes] = []
    offset = 0
    for name, values in tensors.items():
        dtype, data = _encode(values)
        entry = {"name": name, "dtype": dtype, "shape": values.shape, "offset": offset}
        entries.append(entry | {"bytes": len(data)})
        if name in exponents:
            entries[-1]["exponent"] = exponents[name]
        chunks.append(data)
        offset += len(data)
    header = {
        "format": "gpt-oss-nano-compact-2",
        "config": config,
        "full_vocab": config["vocab_size"],
        "tensors": entries,
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    raw = len(head).to_bytes(8, "little") + head + b"".join(chunks)
    return lzma.compress(raw, check=lzma.CHECK_SHA256, preset=9 | lzma.PRESET_EXTREME)


def _encode(values: NDArray[Any]) -> tuple[str, bytes]:
    if values.dtype == np.uint8:
        return "u8", values.tobytes()
    if values.dtype == np.dtype("<u4"):
        return "u32", values.tobytes()
    dtype = {"uint16": "bf16-planes", "int16": "i16-planes"}[str(values.dtype)]
    bits = np.ascontiguousarray(values).view(np.uint16)
    return dtype, (bits >> 8).astype(np.uint8).tobytes() + (bits & 0xFF).astype(np.uint8).tobytes()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(export(Path(sys.argv[1])))
