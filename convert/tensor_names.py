"""Names of a checkpoint's tensors, however they are spelled, as Hugging Face has them."""

import re
from collections.abc import Iterable, Mapping

from gptoss_local.base.errors import ConvertError

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
    "mlp.mlp1_weight": "mlp.experts.gate_up_proj.weight",  # bf16, which is not transposed here
    "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
    "mlp.mlp2_weight.blocks": "mlp.experts.down_proj_blocks",
    "mlp.mlp2_weight.scales": "mlp.experts.down_proj_scales",
    "mlp.mlp2_weight": "mlp.experts.down_proj.weight",
    "mlp.mlp2_bias": "mlp.experts.down_proj_bias",
}

# Programs that train a model wrap it, which shows as a prefix of all names; torch.compile, FSDP and
# gradient checkpointing add names anywhere.
_WRAPPERS = re.compile(r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_PREFIX = re.compile(r"(.*?)(?:model\.(?:layers\.\d+|embed_tokens|norm)|lm_head)\.")
# Some make a linear layer of each expert, here as Unsloth spells it: experts.gate_up_projs.N.
_SPELLINGS = (
    (re.compile(r"\.mlp\.router\.linear\."), ".mlp.router."),
    (
        re.compile(r"\.mlp\.experts\.(\d+)\.((?:gate_up|gate|up|down)_proj)\."),
        r".mlp.experts.\2s.\1.",
    ),
)


def new_names(
    names: Iterable[str], where: str, *, is_original: bool = False
) -> Mapping[str, tuple[str, ...]]:
    """Map all tensor names of an index or a file to ours: to three where QKV is one tensor.

    Names that are not known stay as they are, and those of tables that config.json gives become
    none; two tensors of one name are refused.
    """
    found = {name: _of_original(name) for name in names} if is_original else _unwrapped(names)
    taken: dict[str, str] = {}
    for name, ours in found.items():
        for new in ours:
            if new in taken:
                raise ConvertError(f"{where} holds {new} under two names, {taken[new]} and {name}.")
            taken[new] = name
    return found


def _of_original(name: str) -> tuple[str, ...]:
    if name in _GLOBAL_NAMES:
        return (_GLOBAL_NAMES[name],)
    match = re.fullmatch(r"block\.(\d+)\.(.+)", name)
    if match is None or match[2] not in _LAYER_NAMES:
        return (name,)
    found = f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}"
    return tuple(found.format(part) for part in "qkv") if "{}" in found else (found,)


def _unwrapped(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Cut what wrappers add; a prefix only if it is common to all."""
    bare = {name: _WRAPPERS.sub("", name) for name in names}
    prefixes = {match[1] for name in bare.values() if (match := _PREFIX.match(name))}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    found: dict[str, tuple[str, ...]] = {}
    for name, short in bare.items():
        new = short.removeprefix(prefix)
        for pattern, replacement in _SPELLINGS:
            new = pattern.sub(replacement, new)
        found[name] = () if new.endswith(".rotary_emb.inv_freq") else (new,)
    return found
