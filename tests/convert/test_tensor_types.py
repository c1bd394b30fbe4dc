"""Every type of a weight equals llama.cpp's own quantizer, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from convert import convert_checkpoint
from convert.tensor_types import (
    BF16,
    DENSE_TYPES,
    MAX_SCALE,
    MXFP4,
    TENSOR_TYPES,
    TensorType,
    dequantize,
    repack_blocks,
    widen_bf16,
)
from gptoss_local.base.errors import UsageError
from tests.convert import ggml
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import write_tiny

Rows = NDArray[np.float32]
KINDS = [kind for kind in TENSOR_TYPES.values() if kind.name != "f32"]
LEAST_MXFP4 = 2.0**-125  # below, the reference's scale wraps around to a huge one


def as_f32(values: NDArray[np.floating]) -> Rows:
    return np.ascontiguousarray(values, np.float32)


def rows() -> dict[str, Rows]:
    rng = np.random.default_rng(0)
    plain = as_f32(rng.standard_normal((3000, 32)))
    signs = rng.integers(0, 2, (500, 32), np.uint32) << np.uint32(31)
    below_two = np.nextafter(np.exp2(rng.integers(-9, 9, (3000, 32))).astype("f4"), np.float32(0))
    halves = as_f32(rng.integers(-254, 255, (3000, 32)) / 2)
    return {
        "random": plain,
        "bf16": widen_bf16((plain.view(np.uint32) >> 16).astype(np.uint16)),
        "of many sizes": as_f32(plain * np.exp2(rng.uniform(-40, 14, (3000, 1)))),
        "tiny": as_f32(plain * np.exp2(rng.uniform(-149, -100, (3000, 1)))),
        "denormal": (rng.integers(0, 1 << 23, (500, 32), np.uint32) | signs).view(np.float32),
        "extreme": as_f32(plain[:500] * np.exp2(rng.uniform(10, 124, (500, 1)))),
        "constant": np.repeat(plain[:500, :1], 32, axis=1),
        "zeros of both signs": as_f32(rng.choice([0.0, -0.0], (64, 32))),
        "whole numbers": as_f32(rng.integers(-16, 17, (3000, 32))),
        "halves": np.where(rng.random(halves.shape) < 0.03, np.float32(127), halves),
        "just below powers of two": below_two,
        "one value": as_f32(np.eye(32) * 3.7),
    }


ROWS = rows()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ROWS)
def test_equals_llama_cpp(kind: type[TensorType], name: str) -> None:
    """Where its own result is finite; where it is not, ours is refused."""
    values = ROWS[name]
    if kind is MXFP4:
        largest = np.abs(values).max(axis=1)
        values = values[(largest == 0) | (largest >= LEAST_MXFP4)]
    if not len(values):
        return
    theirs = ggml.quantize(kind.qtype, values)
    is_finite = np.isfinite(kind.dequantize(theirs).reshape(len(values), -1)).all(axis=1)
    if is_finite.any():
        ours = kind.quantize(values[is_finite])
        np.testing.assert_array_equal(ours, theirs.reshape(len(values), -1)[is_finite].reshape(-1))
    for row in values[~is_finite][:50]:
        with pytest.raises(ValueError, match="not finite, or too large"):
            kind.quantize(row)


@given(
    values=hnp.arrays(np.float32, (4, 32), elements=st.floats(-6e4, 6e4, width=32)),
    kind=st.sampled_from(KINDS),
)
def test_equals_llama_cpp_for_anything(values: Rows, kind: type[TensorType]) -> None:
    largest = np.abs(values).max(axis=1)
    values = values[(largest == 0) | (largest >= LEAST_MXFP4)] if kind is MXFP4 else values
    theirs = ggml.quantize(kind.qtype, values)
    np.testing.assert_array_equal(kind.quantize(values), theirs)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["random", "of many sizes", "tiny", "constant", "halves"])
def test_no_value_is_rounded_beyond_the_bound(kind: type[TensorType], name: str) -> None:
    values = ROWS[name]
    values = values[np.abs(values).max(axis=1) < 60_000].reshape(-1, kind.n_values)
    distance = np.abs(kind.dequantize(kind.quantize(values)) - values)
    assert (distance <= kind.bound(values) * np.float32(1 + 2**-20)).all()
    if name == "random":  # and another matrix is not taken for a rounding of this one
        assert (np.abs(values[::-1] - values) > kind.bound(values)).any(axis=1).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_infinite_values_are_refused(kind: type[TensorType], bad: float) -> None:
    values = ROWS["random"][:4].copy()
    values[2, 31] = bad
    with pytest.raises(ValueError, match="not finite"):
        kind.quantize(values)


def test_tiny_mxfp4_blocks_take_the_smallest_scale() -> None:
    for value in (0.0, 2.0**-149, 2.0**-133):
        assert not MXFP4.dequantize(MXFP4.quantize(np.full(32, value, np.float32))).any()
    values = np.full((1, 32), 2.0**-126, np.float32)  # 4 of the smallest scale
    np.testing.assert_array_equal(MXFP4.dequantize(MXFP4.quantize(values)), values)


@pytest.mark.parametrize("dense", DENSE_TYPES)
def test_dense_weights_of_a_checkpoint(tmp_path: Path, dense: str) -> None:
    """Embedding, attention and head get the type; the rest stays as it is."""
    folder = write_tiny(tmp_path / "tiny")
    convert_checkpoint(folder, tmp_path / "m.gguf", dense=dense)
    convert_checkpoint(folder, tmp_path / "bf16.gguf", dense="bf16")
    exact, n_dense = read_gguf(tmp_path / "bf16.gguf").tensors, 0
    for name, tensor in read_gguf(tmp_path / "m.gguf").tensors.items():
        if exact[name].qtype != GGMLQuantizationType.BF16:
            assert tensor.data.tobytes() == exact[name].data.tobytes()
            continue
        assert tensor.qtype.name.lower() == dense
        expected = ggml.quantize(tensor.qtype, exact[name].values())
        assert tensor.data.tobytes() == expected.tobytes()
        n_dense += 1
    assert n_dense == 2 + 4


def test_bf16_rounds_halves_to_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], np.uint32)
    rounded = BF16.quantize(bits.view(np.float32)).view(np.uint16)
    assert [hex(each) for each in rounded] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80", "0xbf82"]


@pytest.mark.parametrize("dense", ["q4_k", "iq2_xxs", "f32", "q5_0", "mxfp4", "int8", ""])
def test_other_types_are_refused(tmp_path: Path, dense: str) -> None:
    with pytest.raises(UsageError, match=f"{dense} is not a type for the dense weights") as caught:
        convert_checkpoint(write_tiny(tmp_path / "tiny"), tmp_path / "m.gguf", dense=dense)
    if "q" in dense and "k" in dense:
        assert "a multiple of 256 values; gpt-oss's have 2,880" in caught.value.hint


@pytest.mark.quick
def test_every_mxfp4_code_at_every_finite_scale_dequantizes_alike() -> None:
    codes = np.arange(32, dtype=np.uint8)
    block = codes[0::2] % 16 | codes[1::2] % 16 << 4
    scales = np.arange(MAX_SCALE + 1, dtype=np.uint8)[:, None]
    blocks = np.broadcast_to(block, (len(scales), 1, 16))
    ours = quants.dequantize(repack_blocks(blocks, scales), MXFP4.qtype)
    np.testing.assert_array_equal(ours, dequantize(blocks, scales))


@pytest.mark.quick
def test_requantizing_mxfp4_keeps_every_value() -> None:
    """The scale may be another one, for a block with a largest value below 4 scales."""
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (50, 3, 16), np.uint8)
    scales = rng.choice(np.array([0, 1, 2, 126, 127, 128, 251, 252], np.uint8), (50, 3))
    values = dequantize(blocks, scales)
    again = quants.dequantize(MXFP4.quantize(values).reshape(50, -1), MXFP4.qtype)
    np.testing.assert_array_equal(again, values)
