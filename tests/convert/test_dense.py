"""bf16 weights: bits kept, widened exactly, or quantized like the reference."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from convert.checkpoint import CheckpointReader
from convert.config import read_config
from convert.dense import check_finite, quantize_q8_0, widen_bf16
from convert.tensor_map import DenseType, plan_tensors
from tests.convert.gguf_file import GgufFile, Tensor

Q8_0 = GGMLQuantizationType.Q8_0


def test_bf16_tensors_keep_their_bits(nano_checkpoint: Path, bf16_file: GgufFile) -> None:
    for source, tensor in pairs(nano_checkpoint, bf16_file, "bf16"):
        if tensor.qtype == GGMLQuantizationType.BF16:
            assert tensor.data.tobytes() == source.tobytes()
        else:
            assert tensor.qtype == GGMLQuantizationType.F32
            widened = source.ravel().astype(np.uint32) << 16
            np.testing.assert_array_equal(tensor.data.view(np.uint32), widened)


def test_q8_0_tensors_equal_the_reference(nano_checkpoint: Path, q8_0_file: GgufFile) -> None:
    n_quantized = 0
    for source, tensor in pairs(nano_checkpoint, q8_0_file, "q8_0"):
        if tensor.qtype == Q8_0:
            # Long rows only make the reference faster; blocks do not reach across rows.
            reference = quants.quantize(widen_bf16(source).reshape(-1, 1024), Q8_0)
            assert tensor.data.tobytes() == reference.tobytes()
            n_quantized += 1
    assert n_quantized == 2 + 4 * 8


def pairs(
    checkpoint: Path, file: GgufFile, dense: DenseType
) -> Iterator[tuple[NDArray[np.uint16], Tensor]]:
    """Source bits and converted tensor, for all but the experts' weights."""
    reader = CheckpointReader(checkpoint)
    plan = plan_tensors(read_config(checkpoint), reader.tensors, dense)
    assert file.tensors.keys() == {t.name for t in plan}
    for planned in plan:
        tensor = file.tensors[planned.name]
        assert tensor.shape == planned.shape
        if planned.scales is None:
            source = reader.read(planned.source)
            if planned.rows != "all":
                source = source[:, 0 if planned.rows == "even" else 1 :: 2]
            yield source, tensor


def test_rounding_halves_and_extremes_like_the_reference() -> None:
    # With a largest value of 127 the scale is 1, so these fractions are rounded as they stand.
    values = [127, 0.5, -0.5, 1.5, 2.5, -2.5, 0.498046875, 126.5, *[0] * 24]
    rows = np.array([values, [0] * 32, [1e-30] * 32, [3e4] * 32], np.float32)
    bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
    reference = quants.quantize(widen_bf16(bits), Q8_0)
    np.testing.assert_array_equal(quantize_q8_0(bits), reference.ravel())


def test_every_bf16_mantissa_and_exponent_like_the_reference() -> None:
    rng = np.random.default_rng(1)
    exponents = rng.integers(100, 140, (20_000, 1), np.uint16) << np.uint16(7)
    bits = exponents | rng.integers(0, 0x80, (20_000, 32), np.uint16)
    bits |= rng.integers(0, 2, bits.shape, np.uint16) << np.uint16(15)
    bits -= rng.integers(0, 4, bits.shape, np.uint16) << np.uint16(7)
    reference = quants.quantize(widen_bf16(bits), Q8_0)
    np.testing.assert_array_equal(quantize_q8_0(bits), reference.ravel())


@pytest.mark.parametrize("bad", [0x7F80, 0xFF80, 0x7FC0, 0x4B80])  # inf, -inf, NaN, 2^24
def test_what_a_float16_scale_cannot_hold_is_refused(bad: int) -> None:
    bits = np.zeros(64, np.uint16)
    bits[40] = bad
    with pytest.raises(ValueError, match="not finite, or too large"):
        quantize_q8_0(bits)


@pytest.mark.parametrize("bad", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_what_is_not_finite_is_found(bad: int) -> None:
    bits = np.array([0, 0x8000, 0x7F7F, 0xFF7F, 1], np.uint16)
    check_finite(bits)
    bits[3] = bad
    with pytest.raises(ValueError, match="not finite"):
        check_finite(bits)


def test_denormal_blocks_become_zero() -> None:
    blocks = quantize_q8_0(np.full(32, 1, np.uint16))
    assert not quants.dequantize(blocks, Q8_0).any()
