"""MXFP4 repacking: bits move, values stay."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from convert.checkpoint import CheckpointReader
from convert.config import read_config
from convert.dense import widen_bf16
from convert.mxfp4 import MAX_SCALE, dequantize, quantize_mxfp4, repack_blocks
from tests.convert.gguf_file import GgufFile

MXFP4 = GGMLQuantizationType.MXFP4


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
    ours = quants.dequantize(repack_blocks(blocks, scales), MXFP4)
    np.testing.assert_array_equal(ours, dequantize(blocks, scales))


def test_strided_input_is_repacked_like_a_copy() -> None:
    blocks, scales = random_blocks(4, 6, 3)
    strided = repack_blocks(blocks[:, 1::2], scales[:, 1::2])
    np.testing.assert_array_equal(strided, repack_blocks(blocks, scales)[:, 1::2])


@pytest.mark.parametrize("scale", [MAX_SCALE + 1, 255])
def test_scale_that_makes_infinities_is_refused(scale: int) -> None:
    blocks, scales = random_blocks(3, 5, 2)
    scales[1, 4, 0] = scale
    with pytest.raises(ValueError, match=f"scale {scale}, NaN or too large"):
        repack_blocks(blocks, scales)


def test_largest_scale_is_finite_with_every_code() -> None:
    blocks = np.full((1, 16), 0x7F, np.uint8)  # 6 and -6
    assert np.isfinite(dequantize(blocks, np.array([MAX_SCALE], np.uint8))).all()


def test_quantizing_equals_the_reference_at_every_exponent_and_mantissa() -> None:
    rng = np.random.default_rng(3)
    exponents = rng.integers(8, 254, (20_000, 1))  # of the largest; 254 overflows in the reference
    exponents = exponents - rng.integers(0, 7, (20_000, 32))
    bits = (exponents << 7 | rng.integers(0, 128, exponents.shape)).astype(np.uint16)
    bits |= rng.integers(0, 2, bits.shape, np.uint16) << np.uint16(15)
    assert len(np.unique(bits & np.uint16(0x7FFF))) > 31_000
    np.testing.assert_array_equal(quantize_mxfp4(bits), quants.quantize(widen_bf16(bits), MXFP4))


def test_quantizing_rounds_what_lies_in_the_middle_down() -> None:
    # The largest of a block is 4 to 8 scales, here with a scale of 1.
    values = np.zeros(32, np.float32)
    values[:8] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7.5]
    values[8:16] = -values[:8]
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    packed = quantize_mxfp4(bits)
    assert packed[0] == 127
    np.testing.assert_array_equal(packed, quants.quantize(values[None], MXFP4)[0])
    assert [int(byte) & 15 for byte in packed[1:]] == [*range(8), 0, *range(9, 16)]


def test_quantizing_what_was_mxfp4_keeps_every_value() -> None:
    """The scale may be another one, for a block whose largest value is below 4 scales."""
    blocks, scales = random_blocks(50, 3)
    values = dequantize(blocks, scales)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    again = quants.dequantize(quantize_mxfp4(bits), MXFP4)
    np.testing.assert_array_equal(again, values)


def test_quantizing_tiny_values_takes_the_smallest_scale() -> None:
    """The reference's scale byte wraps around below 2^-125."""
    for bits in (np.zeros(32, np.uint16), np.full(32, 1, np.uint16)):
        assert not quants.dequantize(quantize_mxfp4(bits), MXFP4).any()
    bits = np.full(32, 1 << 7, np.uint16)  # 2^-126, 4 of the smallest scale
    np.testing.assert_array_equal(
        quants.dequantize(quantize_mxfp4(bits), MXFP4), np.full(32, 2.0**-126, np.float32)
    )


def test_quantizing_keeps_rows_apart_and_takes_views() -> None:
    bits = np.random.default_rng(0).integers(0x3C00, 0x3F00, (4, 64, 10), np.uint16)
    rows = quantize_mxfp4(bits.swapaxes(1, 2))
    assert rows.shape == (4, 10, 34)
    copy = np.ascontiguousarray(bits.swapaxes(1, 2))
    np.testing.assert_array_equal(rows[2, 7], quantize_mxfp4(copy[2, 7]))


@pytest.mark.parametrize("bad", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_quantizing_refuses_what_is_not_finite(bad: int) -> None:
    bits = np.zeros(64, np.uint16)
    bits[40] = bad
    with pytest.raises(ValueError, match="not finite"):
        quantize_mxfp4(bits)


@pytest.mark.parametrize("projection", ["gate", "up", "down"])
def test_every_expert_of_nano(nano_checkpoint: Path, bf16_file: GgufFile, projection: str) -> None:
    reader = CheckpointReader(nano_checkpoint)
    source = "down_proj" if projection == "down" else "gate_up_proj"
    rows = {"gate": slice(0, None, 2), "up": slice(1, None, 2), "down": slice(None)}[projection]
    for layer in range(read_config(nano_checkpoint).num_hidden_layers):
        experts = f"model.layers.{layer}.mlp.experts.{source}"
        blocks = reader.read(f"{experts}_blocks")[:, rows]
        scales = reader.read(f"{experts}_scales")[:, rows]
        tensor = bf16_file.tensors[f"blk.{layer}.ffn_{projection}_exps.weight"]
        assert tensor.qtype == MXFP4
        np.testing.assert_array_equal(tensor.values(), dequantize(blocks, scales))
