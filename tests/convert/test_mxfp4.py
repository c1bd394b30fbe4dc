"""MXFP4 repacking: bits move, values stay."""

import numpy as np
import pytest
from gguf import quants

from convert.tensor_types import MXFP4
from convert.tensor_types.mxfp4 import MAX_SCALE, dequantize, repack_blocks

pytestmark = pytest.mark.quick


def random_blocks(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return (
        rng.integers(0, 256, (*shape, 16), np.uint8),
        # 0 is the smallest exponent; from 253 on, 6 * 2^e no longer fits a float.
        rng.choice(np.array([0, 1, 2, 126, 127, 128, 251, 252], np.uint8), shape),
    )


def test_equals_the_element_wise_definition() -> None:
    blocks, scales = random_blocks(3, 5, 2)
    rows = repack_blocks(blocks, scales).reshape(3, 5, 2, 17)
    np.testing.assert_array_equal(rows[..., 0], scales)
    for index in np.ndindex(3, 5, 2):
        source, packed = blocks[index], rows[index][1:]
        for element in range(32):
            code = source[element // 2] >> (4 * (element % 2)) & 15
            assert packed[element % 16] >> (4 * (element // 16)) & 15 == code


def test_every_code_at_every_finite_scale_dequantizes_alike() -> None:
    codes = np.arange(32, dtype=np.uint8)
    block = codes[0::2] % 16 | codes[1::2] % 16 << 4
    scales = np.arange(253, dtype=np.uint8)[:, None]
    blocks = np.broadcast_to(block, (253, 1, 16))
    ours = quants.dequantize(repack_blocks(blocks, scales), MXFP4.qtype)
    np.testing.assert_array_equal(ours, dequantize(blocks, scales))


@pytest.mark.parametrize("scale", [MAX_SCALE + 1, 255])
def test_scale_that_makes_infinities_is_refused(scale: int) -> None:
    blocks, scales = random_blocks(3, 5, 2)
    scales[1, 4, 0] = scale
    with pytest.raises(ValueError, match=f"scale {scale}, NaN or too large"):
        repack_blocks(blocks, scales)


def test_requantizing_mxfp4_keeps_every_value() -> None:
    """The scale may be another one, for a block whose largest value is below 4 scales."""
    blocks, scales = random_blocks(50, 3)
    values = dequantize(blocks, scales)
    again = quants.dequantize(MXFP4.quantize(values).reshape(50, -1), MXFP4.qtype)
    np.testing.assert_array_equal(again, values)
