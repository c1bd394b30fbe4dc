"""Which tensors the GGUF holds, and from which tensors of a Hugging Face checkpoint each is made.

The plan is made from `config.json` and checked against the checkpoint before a byte is written.
MXFP4 blocks and scales are paired by name, and told from bf16 experts by name. This module never
touches tensor data.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from math import prod
from typing import Literal

import msgspec
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from convert.config import BLOCK_SIZE, ModelConfig
from convert.header import SourceTensor
from gptoss_local.errors import ConvertError

DenseType = Literal["q8_0", "bf16"]
"""How embedding, attention and head are stored; small tensors are always F32."""

ExpertType = Literal["mxfp4", "bf16"]
"""How bf16 experts of a fine-tune are stored; published ones are MXFP4 and stay so."""

Rows = Literal["all", "even", "odd"]
"""Which rows of each expert's matrix: the checkpoint interleaves gate (even) and up (odd)."""

Shape = tuple[int, ...]

_F32 = GGMLQuantizationType.F32
_BF16 = GGMLQuantizationType.BF16
_MXFP4 = GGMLQuantizationType.MXFP4
_DENSE = {"q8_0": GGMLQuantizationType.Q8_0, "bf16": GGMLQuantizationType.BF16}


class PlannedTensor(msgspec.Struct, frozen=True):
    """One tensor of the GGUF and how to make it.

    Attributes:
        name: Its name in the GGUF.
        shape: In elements, slowest axis first (a GGUF file lists axes the other way round).
        source: The checkpoint tensor it is made from; for MXFP4, the blocks.
        scales: The checkpoint tensor with the MXFP4 scales. An MXFP4 tensor without is quantized
            from a bf16 source.
        rows: Which rows of each expert's matrix go into it, after transposing.
        transposed: Whether the source has its last two axes exchanged.
    """

    name: str
    shape: Shape
    qtype: GGMLQuantizationType
    source: str
    scales: str | None = None
    rows: Rows = "all"
    transposed: bool = False

    @property
    def n_bytes(self) -> int:
        """Size of the data in the GGUF, without padding."""
        block, n_block_bytes = GGML_QUANT_SIZES[self.qtype]
        return int(prod(self.shape) // block * n_block_bytes)


def plan_tensors(
    config: ModelConfig,
    tensors: Mapping[str, SourceTensor],
    dense: DenseType,
    experts: ExpertType = "mxfp4",
) -> list[PlannedTensor]:
    """Plan the GGUF of a checkpoint.

    Args:
        config: Gives every shape.
        tensors: What the checkpoint holds.
        dense: Type of the large weights outside the experts.
        experts: Type of bf16 experts.

    Returns:
        The GGUF's tensors in the order in which they will lie in the file.

    Raises:
        ConvertError: The checkpoint lacks a tensor, has one too many, or one of another shape or
            dtype; or MXFP4 experts should become bf16.
    """
    plan = plan_names(config, tensors, dense, experts)
    check_sources(plan, tensors)
    return plan


def plan_names(
    config: ModelConfig, names: Collection[str], dense: DenseType, experts: ExpertType = "mxfp4"
) -> list[PlannedTensor]:
    """Plan as `plan_tensors` does while only the names of the checkpoint's tensors are known.

    Raises:
        ConvertError: As for `plan_tensors`, but for shapes and dtypes.
    """
    held = set(names)
    plan = _all_tensors(config, _DENSE[dense], held)
    _check_names(expected={name for t in plan for name in source_names(t)}, held=held)
    if experts == "bf16":
        plan = [_kept_bf16(tensor) for tensor in plan]
    return plan


def gguf_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Name every tensor of a model's GGUF, with its shape."""
    return {tensor.name: tensor.shape for tensor in _all_tensors(config, _BF16, set())}


def _all_tensors(
    config: ModelConfig, qtype: GGMLQuantizationType, held: Set[str]
) -> list[PlannedTensor]:
    vocab_shape = (config.vocab_size, config.hidden_size)
    return [
        PlannedTensor("token_embd.weight", vocab_shape, qtype, "model.embed_tokens.weight"),
        *(
            tensor
            for layer in range(config.num_hidden_layers)
            for tensor in _layer(config, layer, qtype, held)
        ),
        PlannedTensor("output_norm.weight", (config.hidden_size,), _F32, "model.norm.weight"),
        PlannedTensor("output.weight", vocab_shape, qtype, "lm_head.weight"),
    ]


def check_sources(plan: Iterable[PlannedTensor], tensors: Mapping[str, SourceTensor]) -> None:
    """Check those of a plan's checkpoint tensors that are known so far.

    Raises:
        ConvertError: One has another shape or dtype than `config.json` calls for.
    """
    for tensor in plan:
        for name, (dtype, shape) in _expected_sources(tensor).items():
            held = tensors.get(name)
            if held is not None and (held.dtype, held.shape) != (dtype, shape):
                raise ConvertError(
                    f"{name} in {held.path} is {held.dtype} {list(held.shape)} where the model's "
                    f"config.json calls for {dtype} {list(shape)}.",
                    hint="Check that config.json and the weights are of the same model.",
                )


def source_names(tensor: PlannedTensor) -> list[str]:
    """Return the names of the checkpoint tensors behind a planned tensor."""
    return [tensor.source] if tensor.scales is None else [tensor.source, tensor.scales]


def _layer(
    config: ModelConfig, layer: int, qtype: GGMLQuantizationType, held: Set[str]
) -> list[PlannedTensor]:
    here, there = f"blk.{layer}", f"model.layers.{layer}"
    n_embd, n_experts = config.hidden_size, config.num_local_experts
    n_q, n_kv = config.n_q, config.n_kv
    dense = [
        ("attn_norm.weight", (n_embd,), _F32, "input_layernorm.weight"),
        ("attn_q.weight", (n_q, n_embd), qtype, "self_attn.q_proj.weight"),
        ("attn_q.bias", (n_q,), _F32, "self_attn.q_proj.bias"),
        ("attn_k.weight", (n_kv, n_embd), qtype, "self_attn.k_proj.weight"),
        ("attn_k.bias", (n_kv,), _F32, "self_attn.k_proj.bias"),
        ("attn_v.weight", (n_kv, n_embd), qtype, "self_attn.v_proj.weight"),
        ("attn_v.bias", (n_kv,), _F32, "self_attn.v_proj.bias"),
        ("attn_output.weight", (n_embd, n_q), qtype, "self_attn.o_proj.weight"),
        ("attn_output.bias", (n_embd,), _F32, "self_attn.o_proj.bias"),
        ("attn_sinks.weight", (config.num_attention_heads,), _F32, "self_attn.sinks"),
        ("post_attention_norm.weight", (n_embd,), _F32, "post_attention_layernorm.weight"),
        ("ffn_gate_inp.weight", (n_experts, n_embd), _F32, "mlp.router.weight"),
        ("ffn_gate_inp.bias", (n_experts,), _F32, "mlp.router.bias"),
    ]
    experts = f"{there}.mlp.experts"
    return [
        *(PlannedTensor(f"{here}.{n}", shape, q, f"{there}.{src}") for n, shape, q, src in dense),
        *_experts(f"{here}.ffn_gate_exps", f"{experts}.gate_up_proj", config, "even", held),
        *_experts(f"{here}.ffn_up_exps", f"{experts}.gate_up_proj", config, "odd", held),
        *_experts(f"{here}.ffn_down_exps", f"{experts}.down_proj", config, "all", held),
    ]


def _experts(
    name: str, source: str, config: ModelConfig, rows: Rows, held: Set[str]
) -> list[PlannedTensor]:
    n_in, n_out = config.hidden_size, config.intermediate_size
    if rows == "all":  # down_proj leads back to the hidden size
        n_in, n_out = n_out, n_in
    shape = (config.num_local_experts, n_out, n_in)
    weight = PlannedTensor(f"{name}.weight", shape, _MXFP4, f"{source}_blocks", f"{source}_scales")
    if source in held:  # bf16 as transformers has it: input axis before output axis
        weight = PlannedTensor(weight.name, shape, _MXFP4, source, transposed=True)
    elif f"{source}.weight" in held:  # bf16 of the original layout
        weight = PlannedTensor(weight.name, shape, _MXFP4, f"{source}.weight")
    return [
        msgspec.structs.replace(weight, rows=rows),
        PlannedTensor(f"{name}.bias", shape[:2], _F32, f"{source}_bias", rows=rows),
    ]


def _kept_bf16(tensor: PlannedTensor) -> PlannedTensor:
    if tensor.qtype != _MXFP4:
        return tensor
    if tensor.scales is not None:
        raise ConvertError(
            f"{tensor.source} is MXFP4 already; experts of this checkpoint cannot be kept as bf16.",
            hint="Convert without asking for bf16 experts; MXFP4 keeps every bit of them.",
        )
    return msgspec.structs.replace(tensor, qtype=_BF16)


def _expected_sources(tensor: PlannedTensor) -> dict[str, tuple[str, Shape]]:
    """Name, dtype and shape of the checkpoint tensors behind one planned tensor."""
    shape = tensor.shape
    if tensor.rows != "all":
        shape = (shape[0], 2 * shape[1], *shape[2:])
    if tensor.transposed:
        shape = (shape[0], shape[2], shape[1])
    if tensor.scales is None:
        return {tensor.source: ("BF16", shape)}
    grid = (*shape[:-1], shape[-1] // BLOCK_SIZE)
    return {tensor.source: ("U8", (*grid, BLOCK_SIZE // 2)), tensor.scales: ("U8", grid)}


def _check_names(expected: set[str], held: Set[str]) -> None:
    if missing := expected.difference(held):
        raise ConvertError(
            f"The checkpoint lacks {_some_of(missing)}.",
            hint="Check that the download is complete, and that config.json is of the same model.",
        )
    if unexpected := held - expected:
        raise ConvertError(
            f"The checkpoint holds {_some_of(unexpected)}, which gpt-oss does not have.",
            hint="Check that config.json and the weights are of the same model.",
        )


def _some_of(names: Set[str]) -> str:
    first, *rest = sorted(names)
    return f"the tensor {first}" + (f" and {len(rest)} more" if rest else "")
