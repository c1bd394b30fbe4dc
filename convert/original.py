"""The tensors of OpenAI's own layout, `original/`, under Hugging Face's names.

The fused QKV matrix is q, k and v one below the other, so each is a tensor at another offset.
Source: OpenAI's gpt_oss/torch/weights.py (`PARAM_NAME_MAP`) and model.py (`ModelConfig`).
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from convert.config import ModelConfig
from convert.header import SourceTensor
from convert.json_file import read_json
from convert.layout import check_link
from gptoss_local.errors import ConvertError

DTYPES_NAME = "dtypes.json"

_GLOBAL_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.scale": "model.norm.weight",
    "unembedding.weight": "lm_head.weight",
}
_QKV = "self_attn.{}_proj."
_LAYER_NAMES = {
    "attn.norm.scale": "input_layernorm.weight",
    "attn.qkv.weight": f"{_QKV}weight",
    "attn.qkv.bias": f"{_QKV}bias",
    "attn.sinks": "self_attn.sinks",
    "attn.out.weight": "self_attn.o_proj.weight",
    "attn.out.bias": "self_attn.o_proj.bias",
    "mlp.norm.scale": "post_attention_layernorm.weight",
    "mlp.gate.weight": "mlp.router.weight",
    "mlp.gate.bias": "mlp.router.bias",
    "mlp.mlp1_weight.blocks": "mlp.experts.gate_up_proj_blocks",
    "mlp.mlp1_weight.scales": "mlp.experts.gate_up_proj_scales",
    "mlp.mlp1_weight": "mlp.experts.gate_up_proj.weight",  # bf16; no such name in HF's, see below
    "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
    "mlp.mlp2_weight.blocks": "mlp.experts.down_proj_blocks",
    "mlp.mlp2_weight.scales": "mlp.experts.down_proj_scales",
    "mlp.mlp2_weight": "mlp.experts.down_proj.weight",
    "mlp.mlp2_bias": "mlp.experts.down_proj_bias",
}
_STORED_AS = {"BF16": "BF16", "FP4": "U8", "UE8": "U8"}


def hugging_face_names(name: str) -> tuple[str, ...]:
    """Return a tensor's name, or the three of QKV, in Hugging Face's layout.

    bf16 experts are `..._proj.weight`, not `..._proj`, as they are not transposed. Unknown names
    stay as they are.
    """
    if name in _GLOBAL_NAMES:
        return (_GLOBAL_NAMES[name],)
    match = re.fullmatch(r"block\.(\d+)\.(.+)", name)
    if match is None or match[2] not in _LAYER_NAMES:
        return (name,)
    found = f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}"
    return tuple(found.format(part) for part in "qkv") if "{}" in found else (found,)


def to_hugging_face(
    tensors: Mapping[str, SourceTensor], config: ModelConfig
) -> dict[str, SourceTensor]:
    """Rename the tensors of a checkpoint, or of one of its shards, and cut QKV in three."""
    renamed: dict[str, SourceTensor] = {}
    for name, tensor in tensors.items():
        names = hugging_face_names(name)
        parts = [tensor] if len(names) == 1 else _cut_qkv(name, tensor, config)
        for new_name, part in zip(names, parts, strict=True):
            if new_name in renamed:
                raise ConvertError(f"{tensor.path} holds {new_name} under two names, also {name}.")
            renamed[new_name] = part
    return renamed


def _cut_qkv(name: str, tensor: SourceTensor, config: ModelConfig) -> list[SourceTensor]:
    rows = [config.n_q, config.n_kv, config.n_kv]
    if tensor.dtype != "BF16" or not tensor.shape or tensor.shape[0] != sum(rows):
        raise ConvertError(
            f"{name} in {tensor.path} is {tensor.dtype} {list(tensor.shape)} where config.json "
            f"calls for BF16 with {sum(rows)} rows.",
            hint="Check that config.json and the weights are of the same model.",
        )
    n_row_bytes = tensor.n_bytes // sum(rows)
    parts, offset = [], tensor.offset
    for n_rows in rows:
        n_bytes = n_rows * n_row_bytes
        shape = (n_rows, *tensor.shape[1:])
        parts.append(msgspec.structs.replace(tensor, shape=shape, offset=offset, n_bytes=n_bytes))
        offset += n_bytes
    return parts


def check_dtypes(folder: Path, tensors: Mapping[str, SourceTensor]) -> None:
    path = folder / DTYPES_NAME
    if not path.is_file():
        return
    check_link(path)
    for name, dtype in read_json(path, dict[str, str]).items():
        if name in tensors and _STORED_AS.get(dtype) != tensors[name].dtype:
            raise ConvertError(
                f"{path} says that {name} is {dtype}; in {tensors[name].path} it is "
                f"{tensors[name].dtype}.",
                hint="Download the checkpoint again; its files do not belong together.",
            )
