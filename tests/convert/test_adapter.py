"""LoRA adapters of PEFT, merged while a checkpoint is converted."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from convert import convert_checkpoint, plan_conversion
from convert.tensor_types import MXFP4, widen_bf16
from convert.tensor_types.mxfp4 import dequantize
from convert.verify import verify_model
from gptoss_local.base.errors import ConvertError
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import (
    Tensors,
    tiny_config,
    tiny_tensors,
    write_json,
    write_safetensors,
    write_tiny,
)

Values = NDArray[np.float32]
LAYER = "model.layers.0"
EXPERTS = f"{LAYER}.mlp.experts"
CONFIG = tiny_config(num_hidden_layers=2)
N_EXPERTS, N_EMBD, N_FF = 5, 64, 32


class Lora(NamedTuple):
    a: Values
    b: Values


def lora(seed: int, n_in: int, n_out: int, r: int, n_experts: int = 1) -> Lora:
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 0.3, (r * n_experts, n_in)).astype(np.float32)
    return Lora(a, rng.normal(0, 0.3, (n_out, r * n_experts)).astype(np.float32))


def write_adapter(folder: Path, loras: dict[str, Lora], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    stated = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"} | config
    write_json(folder / "adapter_config.json", stated)
    tensors: Tensors = {}
    for stem, pair in loras.items():
        for part, values in zip("AB", pair, strict=True):
            name = f"{stem}.lora_{part}.weight"
            if stem.endswith("embed_tokens"):
                name = f"{stem}.lora_embedding_{part}"
            tensors[f"base_model.model.{name}"] = ("F32", values)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


def change_of_experts(pair: Lora, scale: float) -> Values:
    """As PEFT's ParamWrapper computes it: (experts, in, out)."""
    a = pair.a.reshape(N_EXPERTS, -1, pair.a.shape[1])
    b = pair.b.reshape(pair.b.shape[0], -1, N_EXPERTS)
    return np.einsum("ore,eri->eio", b, a) * np.float32(scale)


def base_experts(tensors: Tensors, name: str) -> Values:
    """(experts, in, out), whichever way they are held."""
    if name in tensors:
        return widen_bf16(tensors[name][1])
    blocks, scales = (tensors[f"{name}_{part}"][1] for part in ("blocks", "scales"))
    return dequantize(blocks, scales).swapaxes(1, 2)


def held(path: Path, name: str) -> Values:
    tensor = read_gguf(path).tensors[name]
    if tensor.qtype.name == "MXFP4":
        return MXFP4.dequantize(tensor.data).reshape(tensor.shape)
    return widen_bf16(tensor.data.view(np.uint16)).reshape(tensor.shape)


@pytest.mark.parametrize("kept", ["mxfp4", "bf16"])
@pytest.mark.parametrize("source", ["mxfp4", "bf16"])
@pytest.mark.parametrize("layout", ["hugging_face", "original"])
def test_experts(tmp_path: Path, source: Any, kept: Any, layout: Any) -> None:
    """`target_parameters`: the second parameter's wrapper is around the first one's."""
    tensors = tiny_tensors(CONFIG, experts=source)
    base = write_tiny(tmp_path / "base", config=CONFIG, tensors=tensors, layout=layout)
    tokenizer = write_tiny(tmp_path / "tokenizer")
    gate_up, down = lora(1, N_EMBD, 2 * N_FF, 4, N_EXPERTS), lora(2, N_FF, N_EMBD, 4, N_EXPERTS)
    adapter = write_adapter(tmp_path / "adapter", {f"{EXPERTS}.base_layer": gate_up, EXPERTS: down})
    options: Any = {"adapter": adapter, "experts": kept, "tokenizer": tokenizer}
    (path,) = convert_checkpoint(base, tmp_path / "m.gguf", **options)
    merged = {
        name: base_experts(tensors, f"{EXPERTS}.{name}") + change_of_experts(pair, 2.0)
        for name, pair in (("gate_up_proj", gate_up), ("down_proj", down))
    }
    right = {
        "gate": merged["gate_up_proj"][..., ::2].swapaxes(1, 2),
        "up": merged["gate_up_proj"][..., 1::2].swapaxes(1, 2),
        "down": merged["down_proj"].swapaxes(1, 2),
    }
    for part, values in right.items():
        stored = held(path, f"blk.0.ffn_{part}_exps.weight")
        if kept == "bf16":
            np.testing.assert_allclose(stored, values, rtol=2**-8, atol=1e-4)
        else:
            data = MXFP4.quantize(np.ascontiguousarray(values))
            expected = MXFP4.dequantize(data).reshape(values.shape)
            assert (stored == expected).mean() > 0.999  # a sum in another order may tip a value
    assert verify_model(path, against=base, adapter=adapter, tokenizer=tokenizer).is_proven


def test_exchanged_axes_are_told_by_gate_and_up(tmp_path: Path) -> None:
    """Versions of PEFT differ; `down_proj` may be square and does not tell."""
    config = CONFIG | {"intermediate_size": N_EMBD}
    tensors = tiny_tensors(config, experts="bf16")
    base = write_tiny(tmp_path / "base", config=config, tensors=tensors)
    found = []
    pairs = lora(1, N_EMBD, 2 * N_EMBD, 4, N_EXPERTS), lora(2, N_EMBD, N_EMBD, 4, N_EXPERTS)
    for is_swapped in (False, True):
        loras = dict(zip((f"{EXPERTS}.base_layer", EXPERTS), pairs, strict=True))
        if is_swapped:
            loras = {name: exchanged(pair) for name, pair in loras.items()}
        adapter = write_adapter(tmp_path / f"{is_swapped}", loras)
        path = tmp_path / f"{is_swapped}.gguf"
        convert_checkpoint(base, path, adapter=adapter, experts="bf16")
        found.append([held(path, f"blk.0.ffn_{part}_exps.weight") for part in ("up", "down")])
    for plain, swapped in zip(*found, strict=True):
        np.testing.assert_allclose(plain, swapped, rtol=2**-7, atol=1e-4)


def exchanged(pair: Lora) -> Lora:
    """The same change with factors for exchanged axes."""
    r = pair.a.shape[0] // N_EXPERTS
    a = pair.a.reshape(N_EXPERTS, r, -1)
    b = pair.b.reshape(-1, r, N_EXPERTS)
    new_a = b.transpose(2, 1, 0).reshape(N_EXPERTS * r, -1)
    new_b = a.transpose(2, 1, 0).reshape(-1, r * N_EXPERTS)
    return Lora(np.ascontiguousarray(new_a), np.ascontiguousarray(new_b))


def test_a_linear_layer_of_one_expert(tmp_path: Path) -> None:
    """As some trainers make of each expert, over a base with one matrix."""
    tensors = tiny_tensors(CONFIG)
    base = write_tiny(tmp_path / "base", config=CONFIG, tensors=tensors)
    pair = lora(1, N_FF, N_EMBD, 4)
    adapter = write_adapter(tmp_path / "adapter", {f"{EXPERTS}.down_projs.3": pair})
    (path,) = convert_checkpoint(base, tmp_path / "m.gguf", adapter=adapter, experts="bf16")
    right = base_experts(tensors, f"{EXPERTS}.down_proj").swapaxes(1, 2).copy()
    right[3] += pair.b @ pair.a * np.float32(2)
    stored = held(path, "blk.0.ffn_down_exps.weight")
    np.testing.assert_allclose(stored, right, rtol=2**-8, atol=1e-5)
    gate = read_gguf(path).tensors["blk.0.ffn_gate_exps.weight"]
    assert gate.qtype.name == "MXFP4", "what does not change keeps its bits"


REFUSED: dict[str, tuple[dict[str, Lora], dict[str, Any], str]] = {
    "another model": ({"model.layers.9.self_attn.q_proj": lora(1, 64, 96, 4)}, {}, "layers.9"),
    "another size": ({f"{LAYER}.self_attn.q_proj": lora(1, 32, 96, 4)}, {}, "do not fit"),
    "rank": ({f"{LAYER}.self_attn.q_proj": lora(1, 64, 96, 8)}, {}, "8 rows where 4"),
    "dora": ({f"{LAYER}.self_attn.q_proj": lora(1, 64, 96, 4)}, {"use_dora": True}, "use_dora"),
    "bias": ({f"{LAYER}.self_attn.q_proj": lora(1, 64, 96, 4)}, {"bias": "all"}, "bias"),
    "kind": ({}, {"peft_type": "IA3"}, "'IA3', not LORA"),
    "empty": ({}, {}, "holds no tensors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unmergeable_adapters_are_refused(tmp_path: Path, name: str) -> None:
    loras, config, match = REFUSED[name]
    base = write_tiny(tmp_path / "base", config=CONFIG)
    adapter = write_adapter(tmp_path / "adapter", loras, **config)
    with pytest.raises(ConvertError, match=match) as caught:
        convert_checkpoint(base, tmp_path / "m.gguf", adapter=adapter)
    assert "peft" in caught.value.hint
    assert {path.name for path in tmp_path.iterdir()} == {"base", "adapter"}


def test_a_whole_weight_beside_the_factors_is_refused(tmp_path: Path) -> None:
    base = write_tiny(tmp_path / "base", config=CONFIG)
    adapter = write_adapter(tmp_path / "adapter", {"lm_head": lora(1, 64, 24, 4)})
    extra = {"base_model.model.lm_head.weight": ("F32", np.zeros((24, 64), np.float32))}
    write_safetensors(adapter / "adapter_model.safetensors", extra)
    with pytest.raises(ConvertError, match=r"lm_head\.weight is not a factor of a LoRA"):
        convert_checkpoint(base, tmp_path / "m.gguf", adapter=adapter)


def test_base_and_adapter_in_one_folder(tmp_path: Path) -> None:
    """transformers would apply the adapter; it is never left out in silence."""
    base = write_tiny(tmp_path / "base", config=CONFIG)
    write_adapter(base, {"lm_head": lora(1, 64, 24, 4)})
    for convert in (convert_checkpoint, plan_conversion):
        with pytest.raises(ConvertError, match="a model and an adapter") as caught:
            convert(base, tmp_path / "m.gguf")
        assert f"--adapter {base}" in caught.value.hint
    (path,) = convert_checkpoint(base, tmp_path / "m.gguf", adapter=base)
    assert verify_model(path, against=base, adapter=base).is_proven


def test_another_adapter_starts_over(tmp_path: Path) -> None:
    """A journal of one adapter is not continued with another."""
    base = write_tiny(tmp_path / "base", config=CONFIG)
    first = write_adapter(tmp_path / "first", {"lm_head": lora(1, 64, 24, 4)})
    second = tmp_path / "second"
    shutil.copytree(first, second)
    write_adapter(second, {"lm_head": lora(2, 64, 24, 4)})
    target = tmp_path / "m.gguf"
    plans = [plan_conversion(base, target, adapter=each) for each in (first, second)]
    assert plans[0].fingerprint != plans[1].fingerprint
