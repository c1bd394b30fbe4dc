"""LoRA adapters with random factors, as a GGUF of llama.cpp's and as PEFT's files."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from gptoss_local.base.formats.gguf_file import read_info
from tests.convert.tiny import Tensors, write_json, write_safetensors

Values = NDArray[np.float32]
RANK, ALPHA = 4, 8.0
ATTENTION = ("blk.0.attn_q.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight")
EXPERTS = tuple(f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up", "down"))
OTHERS = ("blk.0.ffn_gate_inp.weight", "output.weight")

Factors = dict[str, tuple[Values, Values]]


def random_factors(base: Path, names: tuple[str, ...], *, size: float = 0.05) -> Factors:
    """Return factors of tensors of a GGUF: (experts,) (rank, in) and (experts,) (out, rank)."""
    rng = np.random.default_rng(5)
    shapes = {tensor.name: tensor.shape for tensor in read_info(base).tensors}
    found = {}
    for name in names:
        *experts, n_out, n_in = shapes[name]
        a, b = (rng.normal(0, 1, (*experts, *ends)) for ends in ((RANK, n_in), (n_out, RANK)))
        found[name] = (a.astype(np.float32), (b * size / np.sqrt(n_in)).astype(np.float32))
    return found


def write_lora(path: Path, factors: Factors, **keys: Any) -> Path:
    """Write a GGUF as llama.cpp's `convert_lora_to_gguf.py` does; a key of None is left out."""
    stated = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA}
    writer = GGUFWriter(path, keys.pop("arch", "gpt-oss"))
    for key, value in (stated | keys).items():
        if value is not None:
            add = writer.add_string if isinstance(value, str) else writer.add_float32
            add(key, value)
    for name, pair in factors.items():
        for part, values in zip("ab", pair, strict=True):
            writer.add_tensor(f"{name}.lora_{part}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_peft(folder: Path, factors: Factors) -> Path:
    """Write the same change as PEFT's files; gate and up are rows of one matrix there."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}
    write_json(folder / "adapter_config.json", config)
    tensors: Tensors = {}
    for name, (a, b) in factors.items():
        if name not in EXPERTS:
            tensors |= _pair(_MODULES[name], a, b)
    if EXPERTS[0] in factors:
        tensors |= _experts(*(factors[name] for name in EXPERTS))
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


_MODULES = {
    "blk.0.attn_q.weight": "model.layers.0.self_attn.q_proj",
    "blk.1.attn_v.weight": "model.layers.1.self_attn.v_proj",
    "blk.1.attn_output.weight": "model.layers.1.self_attn.o_proj",
    "blk.0.ffn_gate_inp.weight": "model.layers.0.mlp.router",
    "output.weight": "lm_head",
}


def _pair(module: str, a: Values, b: Values) -> Tensors:
    stem = f"base_model.model.{module}.lora"
    return {f"{stem}_A.weight": ("F32", a), f"{stem}_B.weight": ("F32", b)}


def _experts(
    gate: tuple[Values, Values], up: tuple[Values, Values], down: tuple[Values, Values]
) -> Tensors:
    """Write a linear layer for each expert; gate and up are alternating rows, and share factors."""
    tensors: Tensors = {}
    for expert in range(len(down[0])):
        stem = "model.layers.0.mlp.experts"
        both = np.stack([gate[1][expert], up[1][expert]], axis=1).reshape(-1, RANK)
        tensors |= _pair(f"{stem}.gate_up_projs.{expert}", gate[0][expert], both)
        tensors |= _pair(f"{stem}.down_projs.{expert}", down[0][expert], down[1][expert])
    return tensors
