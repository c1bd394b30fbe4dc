"""Fuzzes the reader of safetensors headers: any file gives a list of tensors or a ConvertError.

    python -m tests.convert.fuzz_header --seconds 60 [--seed 1]

It starts from a valid file and edits bytes, numbers and structure; a file that breaks the rule is
kept, and its path printed.
"""

import argparse
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from convert.header import read_header
from gptoss_local.errors import ConvertError
from tests.convert.tiny import tiny_tensors, write_safetensors

MAX_PEAK_BYTES = 20_000_000  # for files of 100 kB
NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"9" * 30, b"9" * 5000, b"1.5", str(2**63).encode())
TOKENS = (b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"\xff", b"\\ud800", b"\0", b'"dtype"')
N_KEPT_BYTES = 4096  # of the header; edits in the rest of it would all be alike


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Edit a file once: its length field, a byte, a number, a stretch, or its end."""
    n_header = int.from_bytes(data[:8], "little")
    at = rng.randrange(8, 8 + min(N_KEPT_BYTES, max(1, len(data) - 8)))
    match rng.randrange(7):
        case 0:
            n_header = rng.choice((0, 1, 2**32, 2**63, 2**64 - 1, n_header + rng.randint(-9, 9)))
            return (n_header % 2**64).to_bytes(8, "little") + data[8:]
        case 1:
            return data[: rng.randrange(len(data) + 1)]
        case 2:
            return _replace(data, at, 1, bytes([rng.randrange(256)]))
        case 3:
            return _replace(data, at, rng.randrange(40), rng.choice(TOKENS))
        case 4:
            digits = [i for i, byte in enumerate(data[: 8 + N_KEPT_BYTES]) if 48 <= byte < 58]
            return _replace(data, rng.choice(digits or [0]), 1, rng.choice(NUMBERS))
        case 5:
            return _replace(data, at, 0, data[at : at + rng.randrange(300)])
        case _:
            return _replace(data, at, 0, rng.choice((b"[", b'{"a":')) * rng.randrange(5000))


def _replace(data: bytes, at: int, n_bytes: int, new: bytes) -> bytes:
    """Replace, and half of the time keep the length field true, so that parsing goes on."""
    edited = data[:at] + new + data[at + n_bytes :]
    n_header = int.from_bytes(data[:8], "little") + len(edited) - len(data)
    is_true = at >= 8 and at % 2 and 0 <= n_header < 2**63
    return n_header.to_bytes(8, "little") + edited[8:] if is_true else edited


def fuzz(seconds: float, seed: int, folder: Path) -> tuple[int, int]:
    """Try files until the time is over.

    Returns:
        How many were tried, and how many of them were read without an error.

    Raises:
        Exception: Whatever but a ConvertError the reader raised; the file is `fuzz.safetensors`.
    """
    rng = random.Random(seed)
    path = folder / "fuzz.safetensors"
    write_safetensors(path, tiny_tensors())
    valid = path.read_bytes()
    n_tried = n_read = 0
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        data = valid
        for _ in range(rng.choice((1, 1, 2, 5))):
            data = mutate(rng, data) or valid
        path.write_bytes(data)
        n_tried += 1
        try:
            tensors = read_header(path)
        except ConvertError:
            continue
        n_read += 1
        for tensor in tensors.values():
            assert 8 <= tensor.offset <= tensor.offset + tensor.n_bytes <= len(data)
    return n_tried, n_read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-header-"))
    print(f"seed {arguments.seed}, files in {folder}")
    tracemalloc.start()
    n_tried, n_read = fuzz(arguments.seconds, arguments.seed, folder)
    peak = tracemalloc.get_traced_memory()[1]
    print(f"{n_tried} files, {n_read} read, {n_tried - n_read} refused, peak {peak / 1e6:.1f} MB")
    return int(peak > MAX_PEAK_BYTES)


if __name__ == "__main__":
    sys.exit(main())
