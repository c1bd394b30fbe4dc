"""The shipped weights: rows that are computed rather than kept, exactly the same everywhere."""

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from gptoss_local.models.nano.compact import (
    N_BITS,
    coded_rows,
    vocabulary_codes,
)
from gptoss_local.models.nano.ranks import load_ranks

MAX_BITS = 255  # the longest code for which rows are exact


def python_bf16(value: float) -> int:
    """Round a number that float32 holds exactly to bf16, ties to even."""
    (bits,) = np.array([value], np.float32).view(np.uint32).tolist()
    low, high = bits & 0xFFFF, bits >> 16
    return int(high + (low > 0x8000 or (low == 0x8000 and high % 2 == 1)))


def test_codes_are_pinned() -> None:
    """The shipped weights know their tokens by these bits; no two tokens have the same."""
    every = vocabulary_codes()
    assert (every.dtype, every.shape) == (np.int8, (len(load_ranks()), N_BITS))
    pinned = "7aed2475f5b61de77d9283f407324c3a60dd58dbc567389c0e3d7853ca8344f6"
    assert sha256(every.tobytes()).hexdigest() == pinned


def test_chunks_and_columns_do_not_matter() -> None:
    """Other chunks and shapes make BLAS add in other orders; the largest factors leave no room."""
    rng = np.random.default_rng(6)
    code_map = rng.integers(-32768, 32768, (MAX_BITS, 96)).astype(np.int16)
    code_map[:, 0] = code_map[:, 1] = 32767
    code_map[:, 2] = 0
    shared = rng.integers(-32768, 32768, 96).astype(np.int16)
    shared[:3] = 32767, 32767, 0
    codes = rng.choice(np.array([-1, 1], np.int8), (1000, MAX_BITS))
    codes[:2] = 1  # all factors of one sign: the largest sum

    def rows(chunk: int, part: slice = slice(None)) -> NDArray[np.uint16]:
        made = coded_rows(codes, code_map[:, part], shared[part], 12, chunk_rows=chunk)
        return np.concatenate(list(made))

    whole = rows(1000)
    sums = codes.astype(np.int64) @ code_map.astype(np.int64) + shared
    assert whole.tolist() == [[python_bf16(s / 4096) for s in row] for row in sums.tolist()]
    for chunk in (1, 7, 999, 4096):
        np.testing.assert_array_equal(rows(chunk), whole)
    np.testing.assert_array_equal(rows(64, slice(0, 5)), whole[:, :5])
