"""Properties of any checkpoint: each shape converts right, damage gives nothing but a ConvertError.

The right values are computed once more here, element by element and without the package's own
functions.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from convert import convert_checkpoint
from gptoss_local.base.errors import ConvertError
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import Layout, Tensors, tiny_config, tiny_tensors, write_tiny

LAYOUTS = st.sampled_from(("hugging_face", "original"))
EXPERTS = st.sampled_from(("mxfp4", "bf16"))
BLOCKS_OF_32 = st.integers(1, 4).map(lambda n: 32 * n)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    n_kv_heads, n_experts = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    return tiny_config(
        num_hidden_layers=draw(st.integers(1, 3)),
        hidden_size=draw(BLOCKS_OF_32),
        intermediate_size=draw(BLOCKS_OF_32),
        num_key_value_heads=n_kv_heads,
        num_attention_heads=n_kv_heads * draw(st.integers(1, 3)),
        head_dim=draw(BLOCKS_OF_32),
        num_local_experts=n_experts,
        num_experts_per_tok=draw(st.integers(1, n_experts)),
        vocab_size=draw(st.integers(24, 40)),
    )


@settings(database=None)
@given(
    config=configs(),
    layout=LAYOUTS,
    experts=EXPERTS,
    kept=st.booleans(),
    dense=st.sampled_from(("q8_0", "bf16")),
    n_shards=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_any_shape_equals_the_definition(
    config: dict[str, Any],
    layout: Layout,
    experts: Any,
    kept: bool,
    dense: Any,
    n_shards: int,
    seed: int,
) -> None:
    tensors = tiny_tensors(config, experts=experts, seed=seed)
    kept_as = "bf16" if kept and experts == "bf16" else "mxfp4"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "model"
        write_tiny(source, config=config, tensors=tensors, layout=layout, n_shards=n_shards)
        write_tiny(Path(folder) / "tokenizer")
        target = Path(folder) / "model.gguf"
        tokenizer = Path(folder) / "tokenizer"
        convert_checkpoint(source, target, dense=dense, experts=kept_as, tokenizer=tokenizer)
        found = {name: t.data.tobytes() for name, t in read_gguf(target).tensors.items()}
    assert found == definition(tensors, config["num_hidden_layers"], dense, kept_as)


def definition(tensors: Tensors, n_layers: int, dense: str, kept: str) -> dict[str, bytes]:
    """The bytes of every GGUF tensor."""
    large = q8_0 if dense == "q8_0" else np.ndarray.tobytes
    values = {name: array for name, (_, array) in tensors.items()}
    found = {
        "token_embd.weight": large(values["model.embed_tokens.weight"]),
        "output_norm.weight": f32(values["model.norm.weight"]),
        "output.weight": large(values["lm_head.weight"]),
    }
    for layer in range(n_layers):
        here, there = f"blk.{layer}", f"model.layers.{layer}"
        found[f"{here}.attn_norm.weight"] = f32(values[f"{there}.input_layernorm.weight"])
        found[f"{here}.post_attention_norm.weight"] = f32(
            values[f"{there}.post_attention_layernorm.weight"]
        )
        found[f"{here}.attn_sinks.weight"] = f32(values[f"{there}.self_attn.sinks"])
        for ours, theirs in {"q": "q", "k": "k", "v": "v", "output": "o"}.items():
            projection = f"{there}.self_attn.{theirs}_proj"
            found[f"{here}.attn_{ours}.weight"] = large(values[f"{projection}.weight"])
            found[f"{here}.attn_{ours}.bias"] = f32(values[f"{projection}.bias"])
        for part in ("weight", "bias"):
            found[f"{here}.ffn_gate_inp.{part}"] = f32(values[f"{there}.mlp.router.{part}"])
        experts = f"{there}.mlp.experts"
        for name, source, start, step in (
            ("gate", "gate_up_proj", 0, 2),
            ("up", "gate_up_proj", 1, 2),
            ("down", "down_proj", 0, 1),
        ):
            rows = slice(start, None, step)
            found[f"{here}.ffn_{name}_exps.bias"] = f32(values[f"{experts}.{source}_bias"][:, rows])
            found[f"{here}.ffn_{name}_exps.weight"] = expert(
                values, f"{experts}.{source}", rows, kept
            )
    return found


def expert(values: dict[str, NDArray[Any]], source: str, rows: slice, kept: str) -> bytes:
    if source in values:  # bf16, transposed
        matrices = np.ascontiguousarray(values[source].transpose(0, 2, 1)[:, rows])
        if kept == "bf16":
            return matrices.tobytes()
        return quants.quantize(widen(matrices), GGMLQuantizationType.MXFP4).tobytes()
    blocks, scales = values[f"{source}_blocks"][:, rows], values[f"{source}_scales"][:, rows]
    packed = np.zeros((*scales.shape, 17), np.uint8)
    packed[..., 0] = scales
    for element in range(32):
        code = blocks[..., element // 2] >> (4 * (element % 2)) & 15
        packed[..., 1 + element % 16] |= code << (4 * (element // 16))
    return packed.tobytes()


def widen(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32(bits: NDArray[Any]) -> bytes:
    return widen(bits).tobytes()


def q8_0(bits: NDArray[Any]) -> bytes:
    data: bytes = quants.quantize(widen(bits), GGMLQuantizationType.Q8_0).tobytes()
    return data


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A sharded checkpoint of each layout, and the GGUF it gives."""
    root = tmp_path_factory.mktemp("healthy")
    tokenizer = write_tiny(root / "tokenizer")
    for layout in ("hugging_face", "original"):
        write_tiny(root / layout / "tiny", layout=layout, n_shards=2)  # type: ignore[arg-type]
        convert_checkpoint(root / layout / "tiny", root / layout / "tiny.gguf", tokenizer=tokenizer)
    return lambda layout: (root / layout / "tiny", root / layout / "tiny.gguf")


EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**16),
        st.integers(0, 3),
        st.binary(max_size=4)
        | st.sampled_from((b"0", b"9", b"1e9", b'"', b"}", b",", b"-", b"null")),
    ),
    min_size=1,
    max_size=3,
)


def edit(data: bytes, n_editable: int, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Replace a few bytes at a time by others, within the first `n_editable`."""
    for at, n_bytes, new in edits:
        at %= n_editable
        data = data[:at] + new + data[at + n_bytes :]
    return data


@pytest.mark.parametrize("place", ["header", "config.json", "index", "tokenizer.json"])
@settings(max_examples=settings.default.max_examples // 2, database=None)  # type: ignore[union-attr]
@given(layout=LAYOUTS, edits=EDITS, keeps_length=st.booleans())
def test_damage_is_harmless_or_refused(
    healthy: Callable[[str], tuple[Path, Path]],
    place: str,
    layout: str,
    edits: list[tuple[int, int, bytes]],
    keeps_length: bool,
) -> None:
    source, expected = healthy(layout)
    with tempfile.TemporaryDirectory() as folder:
        damaged = Path(folder) / "tiny"
        shutil.copytree(source, damaged)
        tokenizer = Path(folder) / "tokenizer"
        shutil.copytree(source.parents[1] / "tokenizer", tokenizer)
        damage(damaged, tokenizer, place, edits, keeps_length)
        target = Path(folder) / "tiny.gguf"
        try:
            convert_checkpoint(damaged, target, tokenizer=tokenizer)
        except ConvertError:
            assert not target.exists()
            return
        if place in ("config.json", "tokenizer.json"):  # another number: another sane model
            found, wanted = (
                {name: tensor.data.tobytes() for name, tensor in read_gguf(path).tensors.items()}
                for path in (target, expected)
            )
            assert found == wanted
        else:
            assert target.read_bytes() == expected.read_bytes()


def damage(
    folder: Path,
    tokenizer: Path,
    place: str,
    edits: list[tuple[int, int, bytes]],
    keeps_length: bool,
) -> None:
    if place == "header":
        path = sorted(folder.glob("*.safetensors"))[1]
        data = path.read_bytes()
        n_header = int.from_bytes(data[:8], "little")
        header = edit(data[8 : 8 + n_header], n_header, edits)
        n_stated = len(header) if keeps_length else n_header
        path.write_bytes(n_stated.to_bytes(8, "little") + header + data[8 + n_header :])
        return
    path = tokenizer / place if place == "tokenizer.json" else folder / place
    path = folder / "model.safetensors.index.json" if place == "index" else path
    data = path.read_bytes()
    path.write_bytes(edit(data, len(data), edits))
