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
from bench.nano.train.model import Nano, Rows, Shape
from bench.nano.train.mxfp4 import pack, unpack
from gptoss_local.models.nano.compact import CODED, EMBEDDING, HEAD, CompactModel

_ATTENTION = {
    "norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight", "q_bias": "self_attn.q_proj.bias",
    "k": "self_attn.k_proj.weight", "k_bias": "self_attn.k_proj.bias",
    "v": "self_attn.v_proj.weight", "v_bias": "self_attn.v_proj.bias",
    "o": "self_attn.o_proj.weight", "o_bias": "self_attn.o_proj.bias",
    "sinks": "self_attn.sinks",
}  # fmt: skip
_EXPERTS = {
    "norm": "post_attention_layernorm.weight",
    "router": "mlp.router.weight",
    "router_bias": "mlp.router.bias",
    "down_bias": "mlp.experts.down_proj_bias",
}


def config(shape: Shape) -> dict[str, Any]:
    """The content of config.json."""
    kinds = ("sliding_attention", "full_attention")
    return {
        "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
        "bos_token_id": 199998, "eos_token_id": 200002, "pad_token_id": 199999,
        "experts_per_token": shape.n_experts_per_token, "head_dim": shape.head_dim,
        "hidden_act": "silu", "hidden_size": shape.hidden_size, "initial_context_length": 4096,
        "initializer_range": 0.02, "intermediate_size": shape.intermediate_size,
        "layer_types": [kinds[i % 2] for i in range(shape.n_layers)],
        "max_position_embeddings": 131072, "model_type": "gpt_oss",
        "num_attention_heads": shape.n_heads, "num_experts_per_tok": shape.n_experts_per_token,
        "num_hidden_layers": shape.n_layers, "num_key_value_heads": shape.n_kv_heads,
        "num_local_experts": shape.n_experts, "output_router_logits": False,
        "rms_norm_eps": 1e-05, "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
            "original_max_position_embeddings": 4096, "truncate": False,
        },
        "router_aux_loss_coef": 0.9, "sliding_window": shape.sliding_window, "swiglu_limit": 7.0,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.55.0.dev0", "use_cache": True, "vocab_size": 201088,
        "quantization_config": {
            "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                "lm_head",
            ],
            "quant_method": "mxfp4",
        },
    }  # fmt: skip


def save_weights(model: Nano, tables: Tables, folder: Path) -> None:
    """Write `nano.safetensors` and `nano.json` for `bench.nano.export`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {FINAL_NORM: _bf16_bits(model.norm)}
    for number, block in enumerate(model.blocks):
        prefix = f"model.layers.{number}."
        for name, target in _ATTENTION.items():
            tensors[prefix + target] = _bf16_bits(getattr(block.attention, name))
        for name, target in _EXPERTS.items():
            tensors[prefix + target] = _bf16_bits(getattr(block.experts, name))
        tensors |= {prefix + n: t for n, t in _expert_tensors(block.experts).items()}
    for rows, name in ((model.embed, EMBEDDING), (model.head, HEAD)):
        tensors[name] = _bf16_bits(used_rows(rows, tables.used_codes))
        tensors[f"{CODED[name]}_map"] = rows.code_map.detach().float().cpu().numpy()
        tensors[f"{CODED[name]}_shared"] = rows.shared.detach().float().cpu().numpy()
    save_file(tensors, folder / "nano.safetensors")
    content = {"config": config(model.shape), "used_ids": tables.used.tolist()}
    (folder / "nano.json").write_text(json.dumps(content))


@torch.no_grad()
def load_weights(model: Nano, tables: Tables, finished: CompactModel) -> None:
    """Go on from `nano.xz`, whatever tokens it used: a newly used one starts with its coded row."""

    def fill(parameter: Tensor, values: Tensor) -> None:
        parameter.copy_(values.to(parameter.device))

    def bf16(name: str) -> Tensor:
        bits = torch.tensor(finished.read(name).view(np.int16))
        return bits.view(torch.bfloat16).float()

    fill(model.norm, bf16(FINAL_NORM) / SHARPNESS)
    for number, block in enumerate(model.blocks):
        prefix = f"model.layers.{number}."
        for name, source in _ATTENTION.items():
            fill(getattr(block.attention, name), bf16(prefix + source))
        for name, source in _EXPERTS.items():
            fill(getattr(block.experts, name), bf16(prefix + source))
        bias = bf16(f"{prefix}mlp.experts.gate_up_proj_bias")
        gate_up, down = (
            _experts(finished, f"{prefix}mlp.experts.{n}_proj") for n in ("gate_up", "down")
        )
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


def _experts(finished: CompactModel, stem: str) -> Tensor:
    blocks, scales = (torch.tensor(finished.read(f"{stem}_{n}")) for n in ("blocks", "scales"))
    return unpack(blocks, scales)


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
    bias = interleave(experts.gate_bias, experts.up_bias)
    return {
        "mlp.experts.gate_up_proj_bias": _bf16_bits(bias),
        "mlp.experts.gate_up_proj_blocks": interleave(gate[0], up[0]).cpu().numpy(),
        "mlp.experts.gate_up_proj_scales": interleave(gate[1], up[1]).cpu().numpy(),
        "mlp.experts.down_proj_blocks": down[0].cpu().numpy(),
        "mlp.experts.down_proj_scales": down[1].cpu().numpy(),
    }


def _bf16_bits(tensor: Tensor) -> NDArray[np.uint16]:
    bits = tensor.detach().to(torch.bfloat16).contiguous().cpu().view(torch.int16)
    return bits.numpy().view(np.uint16)
