"""What training leaves behind, and how it goes on from there.

The weights file holds every tensor of the Hugging Face checkpoint under its name there, bf16 as
uint16 bits and experts as MXFP4; embedding and head have the rows of used tokens only, beside the
code maps that make all others. `bench.nano.export` packs it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor

from bench.nano.export import FINAL_NORM, SHARPNESS
from bench.nano.train.batches import Tables
from bench.nano.train.model import Nano, Rows
from bench.nano.train.mxfp4 import pack, unpack
from gptoss_local.models.nano.compact import CODED, EMBEDDING, HEAD, CompactModel, load_compact

_ATTENTION = {
    "norm": "input_layernorm.weight", "sinks": "self_attn.sinks",
    **{n: f"self_attn.{n}_proj.weight" for n in "qkvo"},
    **{f"{n}_bias": f"self_attn.{n}_proj.bias" for n in "qkvo"},
}  # fmt: skip
_EXPERTS = {
    "norm": "post_attention_layernorm.weight", "router": "mlp.router.weight",
    "router_bias": "mlp.router.bias", "down_bias": "mlp.experts.down_proj_bias",
}  # fmt: skip


def save_weights(model: Nano, tables: Tables, folder: Path) -> None:
    """Write `nano.safetensors` and `nano.json`, which has the config of the shipped nano."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {FINAL_NORM: _bf16_bits(model.norm)}
    for number, block in enumerate(model.blocks):
        prefix = f"model.layers.{number}."
        for part, names in ((block.attention, _ATTENTION), (block.experts, _EXPERTS)):
            tensors |= {prefix + to: _bf16_bits(getattr(part, name)) for name, to in names.items()}
        tensors |= {prefix + n: t for n, t in _expert_tensors(block.experts).items()}
    for rows, name in ((model.embed, EMBEDDING), (model.head, HEAD)):
        tensors[name] = _bf16_bits(used_rows(rows, tables.used_codes))
        tensors[f"{CODED[name]}_map"] = rows.code_map.detach().float().cpu().numpy()
        tensors[f"{CODED[name]}_shared"] = rows.shared.detach().float().cpu().numpy()
    save_file(tensors, folder / "nano.safetensors")
    content = {"config": load_compact().config, "used_ids": tables.used.tolist()}
    (folder / "nano.json").write_text(json.dumps(content))


@torch.no_grad()
def load_weights(model: Nano, tables: Tables, finished: CompactModel) -> None:
    """Go on from `nano.xz`, whatever tokens it used: a newly used one starts with its coded row."""

    def bf16(name: str) -> Tensor:
        bits = torch.tensor(finished.read(name).view(np.int16))
        return bits.view(torch.bfloat16).float()

    def fill(parameter: Tensor, values: Tensor) -> None:
        parameter.copy_(values.to(parameter.device))

    fill(model.norm, bf16(FINAL_NORM) / SHARPNESS)
    for number, block in enumerate(model.blocks):
        prefix = f"model.layers.{number}."
        for part, names in ((block.attention, _ATTENTION), (block.experts, _EXPERTS)):
            for name, source in names.items():
                fill(getattr(part, name), bf16(prefix + source))
        stem = f"{prefix}mlp.experts."
        gate_up, down = (
            unpack(*(torch.tensor(finished.read(f"{stem}{n}_{p}")) for p in ("blocks", "scales")))
            for n in ("gate_up_proj", "down_proj")
        )
        bias = bf16(f"{stem}gate_up_proj_bias")
        for i, name in enumerate(("gate", "up")):
            fill(getattr(block.experts, name), gate_up[:, i::2])
            fill(getattr(block.experts, f"{name}_bias"), bias[:, i::2])
        fill(block.experts.down, down)
    for rows, name in ((model.embed, EMBEDDING), (model.head, HEAD)):
        for part, parameter in (("map", rows.code_map), ("shared", rows.shared)):
            fill(parameter, torch.from_numpy(finished.code_part(f"{CODED[name]}_{part}")))
        rows.feature_rows.zero_()
        own = bf16(name)[tables.used.cpu()].to(rows.free.device)
        rows.free.copy_(own - tables.used_codes.float() @ rows.code_map)


@torch.no_grad()
def used_rows(rows: Rows, used_codes: Tensor) -> Tensor:
    """The whole rows of used tokens, [n_used, d] float32."""
    return (rows.table()[:-1] + used_codes.float() @ rows.code_map).float()


@torch.no_grad()
def _expert_tensors(experts: Any) -> dict[str, NDArray[Any]]:
    def interleave(gate: Tensor, up: Tensor) -> Tensor:
        """Rows of gate and up take turns, as gpt-oss stores them."""
        return torch.stack((gate, up), 2).flatten(1, 2)

    gate, up, down = pack(experts.gate), pack(experts.up), pack(experts.down)
    made = {"gate_up_proj_bias": _bf16_bits(interleave(experts.gate_bias, experts.up_bias))}
    for i, part in enumerate(("blocks", "scales")):
        made[f"gate_up_proj_{part}"] = interleave(gate[i], up[i]).cpu().numpy()
        made[f"down_proj_{part}"] = down[i].cpu().numpy()
    return {f"mlp.experts.{name}": tensor for name, tensor in made.items()}


def _bf16_bits(tensor: Tensor) -> NDArray[np.uint16]:
    bits = tensor.detach().to(torch.bfloat16).contiguous().cpu().view(torch.int16)
    return bits.numpy().view(np.uint16)
