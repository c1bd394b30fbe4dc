"""Maps each tensor of the GGUF to the tensors of a Hugging Face checkpoint that it is made from."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from math import prod
from typing import Literal

import msgspec
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from convert.config import BLOCK_SIZE, ModelConfig
from convert.files import FLOAT_DTYPES, SourceTensor
from convert.foreign import check_dtype, check_tensor_names
from convert.tensor_types import DENSE_TYPES, TensorType
from gptoss_local.base.errors import ConvertError, UsageError

DenseType = str
"""The type of embedding, attention and head: the name of a `TensorType`, such as "q8_0"."""

ExpertType = Literal["mxfp4", "bf16"]
"""The type of a fine-tune's float experts; published MXFP4 ones stay MXFP4."""

Rows = Literal["all", "even", "odd"]
"""Rows of each expert's matrix; the checkpoint interleaves gate (even) and up (odd)."""

Shape = tuple[int, ...]

_F32 = GGMLQuantizationType.F32
_BF16 = GGMLQuantizationType.BF16
_MXFP4 = GGMLQuantizationType.MXFP4
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class PlannedTensor(msgspec.Struct, frozen=True):
    """One tensor of the GGUF and how to make it.

    Attributes:
        shape: In elements, slowest axis first (a GGUF file lists axes the other way round).
        sources: The checkpoint tensor it is made from, for MXFP4 the blocks; or one per expert.
        scales: The checkpoint's MXFP4 scales. An MXFP4 tensor without is quantized from floats.
        rows: Which rows of each expert's matrix go into it, after transposing.
        transposed: Whether the source has its last two axes exchanged.
        is_stacked: Whether each source is one expert's, without the first axis of `shape`.
        is_merged: Whether an adapter changes a source.
    """

    name: str
    shape: Shape
    qtype: GGMLQuantizationType
    sources: tuple[str, ...]
    scales: str | None = None
    rows: Rows = "all"
    transposed: bool = False
    is_stacked: bool = False
    is_merged: bool = False

    @property
    def n_bytes(self) -> int:
        block, n_block_bytes = GGML_QUANT_SIZES[self.qtype]
        return int(prod(self.shape) // block * n_block_bytes)

    @property
    def source_shape(self) -> Shape:
        """Return the shape that each source must have; MXFP4 blocks and scales have other ones."""
        shape = self.shape[1:] if self.is_stacked else self.shape
        if self.rows != "all":
            axis = 0 if self.is_stacked else 1
            shape = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
        return (shape[0], shape[2], shape[1]) if self.transposed else shape


def plan_names(
    config: ModelConfig, names: Collection[str], dense: DenseType
) -> list[PlannedTensor]:
    """Plan a GGUF's tensors in its order; ConvertError for missing and unknown ones."""
    held = set(names)
    plan = _all_tensors(config, check_dense(dense).qtype, held)
    _check_names(expected={name for t in plan for name in source_names(t)}, held=held)
    return plan


def keep_bf16(plan: Iterable[PlannedTensor]) -> list[PlannedTensor]:
    """Let experts that are floats or changed become BF16; ConvertError if all are MXFP4."""
    kept = [
        msgspec.structs.replace(tensor, qtype=_BF16)
        if tensor.name.endswith("_exps.weight") and (tensor.scales is None or tensor.is_merged)
        else tensor
        for tensor in plan
    ]
    if not any(tensor.name.endswith("_exps.weight") and tensor.qtype == _BF16 for tensor in kept):
        raise ConvertError(
            "The experts of this checkpoint are MXFP4 already and cannot be kept as bf16.",
            hint="Convert without asking for bf16 experts; MXFP4 keeps every bit of them.",
        )
    return kept


def check_dense(name: DenseType) -> type[TensorType]:
    """Return the type of embedding, attention and head; UsageError if they cannot have it."""
    if kind := DENSE_TYPES.get(name.lower()):
        return kind
    hint = f"Choose one of {', '.join(DENSE_TYPES)}."
    if re.match(r"i?q\d_(k|x)|i?q\d_[sm]|tq", name.lower()):
        hint += " K- and I-quants need rows of a multiple of 256 values; gpt-oss's have 2,880."
    raise UsageError(f"{name} is not a type for the dense weights.", hint=hint)


def gguf_shapes(config: ModelConfig) -> dict[str, Shape]:
    return {tensor.name: tensor.shape for tensor in _all_tensors(config, _BF16, set())}


def _all_tensors(
    config: ModelConfig, qtype: GGMLQuantizationType, held: Set[str]
) -> list[PlannedTensor]:
    vocab_shape = (config.vocab_size, config.hidden_size)
    embedding, head = _EMBEDDING, _HEAD
    if config.tie_word_embeddings:  # one of them stands for both; llama.cpp needs two tensors
        embedding = embedding if embedding in held or head not in held else head
        head = head if head in held else embedding
    return [
        PlannedTensor("token_embd.weight", vocab_shape, qtype, (embedding,)),
        *(
            tensor
            for layer in range(config.num_hidden_layers)
            for tensor in _layer(config, layer, qtype, held)
        ),
        PlannedTensor("output_norm.weight", (config.hidden_size,), _F32, ("model.norm.weight",)),
        PlannedTensor("output.weight", vocab_shape, qtype, (head,)),
    ]


def check_sources(plan: Iterable[PlannedTensor], tensors: Mapping[str, SourceTensor]) -> None:
    for tensor in plan:
        for name, (dtypes, shape) in _expected_sources(tensor).items():
            held = tensors.get(name)
            if held is None or (held.dtype in dtypes and held.shape == shape):
                continue
            if dtypes == FLOAT_DTYPES and held.dtype not in dtypes:
                check_dtype(name, held.dtype, str(held.path))
            right = held.dtype if held.dtype in dtypes else dtypes[0]
            hint = "Check that config.json and the weights are of the same model."
            if held.shape == (*shape[:-2], *shape[:-3:-1]):
                hint = "Its axes are exchanged. Save the model again, with transformers."
            raise ConvertError(
                f"{name} in {held.path} is {held.dtype} {list(held.shape)} where the model's "
                f"config.json calls for {right} {list(shape)}.",
                hint=hint,
            )


def source_names(tensor: PlannedTensor) -> list[str]:
    return [*tensor.sources] if tensor.scales is None else [*tensor.sources, tensor.scales]


def plan_notes(config: ModelConfig, names: Collection[str]) -> Iterator[str]:
    """Note parts of a plan that a reader of config.json might not expect."""
    if config.tie_word_embeddings and {_EMBEDDING, _HEAD} <= set(names):
        yield (
            "config.json ties the head to the embedding, but the checkpoint has both; each is used "
            "as it is"
        )


def rounding_notes(
    plan: Iterable[PlannedTensor], tensors: Mapping[str, SourceTensor]
) -> Iterator[str]:
    """Say which tensors lose bits though their type is meant to keep them."""
    counts = Counter(
        (tensors[tensor.sources[0]].dtype, tensor.qtype.name)
        for tensor in plan
        if tensor.scales is None and tensor.sources[0] in tensors
    )
    for (dtype, name), n in counts.items():
        if name in ("BF16", "F16") and dtype != name:
            yield (
                f"{n} tensors are {dtype} in the checkpoint and become {name}; values that do not "
                "fit are rounded"
            )


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
        *(
            PlannedTensor(f"{here}.{n}", shape, q, (f"{there}.{src}",))
            for n, shape, q, src in dense
        ),
        *_experts(f"{here}.ffn_gate_exps", experts, "gate", config, held),
        *_experts(f"{here}.ffn_up_exps", experts, "up", config, held),
        *_experts(f"{here}.ffn_down_exps", experts, "down", config, held),
    ]


def _experts(
    name: str, there: str, part: str, config: ModelConfig, held: Set[str]
) -> list[PlannedTensor]:
    n_in, n_out = config.hidden_size, config.intermediate_size
    if part == "down":  # leads back to the hidden size
        n_in, n_out = n_out, n_in
    shape = (config.num_local_experts, n_out, n_in)
    rows: Rows = {"gate": "even", "up": "odd"}.get(part, "all")  # type: ignore[assignment]
    source = f"{there}.{'down_proj' if part == 'down' else 'gate_up_proj'}"
    each = range(config.num_local_experts)
    kinds = ("down_projs",) if part == "down" else ("gate_up_projs", f"{part}_projs")
    linears = [
        f"{there}.{kind}"
        for kind in kinds
        if any(f"{there}.{kind}.{i}.weight" in held for i in each)
    ]
    if linears:
        source, rows = linears[0], rows if linears[0].endswith("gate_up_projs") else "all"
        weights = tuple(f"{source}.{i}.weight" for i in each)
        biases = tuple(f"{source}.{i}.bias" for i in each)
        return [
            PlannedTensor(f"{name}.weight", shape, _MXFP4, weights, rows=rows, is_stacked=True),
            PlannedTensor(f"{name}.bias", shape[:2], _F32, biases, rows=rows, is_stacked=True),
        ]
    weight = PlannedTensor(
        f"{name}.weight", shape, _MXFP4, (f"{source}_blocks",), f"{source}_scales", rows
    )
    if source in held:  # floats as transformers has them: input axis before output axis
        weight = PlannedTensor(weight.name, shape, _MXFP4, (source,), rows=rows, transposed=True)
    elif f"{source}.weight" in held:  # floats of the original layout
        weight = PlannedTensor(weight.name, shape, _MXFP4, (f"{source}.weight",), rows=rows)
    bias = PlannedTensor(f"{name}.bias", shape[:2], _F32, (f"{source}_bias",), rows=rows)
    return [weight, bias]


def _expected_sources(tensor: PlannedTensor) -> dict[str, tuple[tuple[str, ...], Shape]]:
    shape = tensor.source_shape
    if tensor.scales is None:
        return dict.fromkeys(tensor.sources, (FLOAT_DTYPES, shape))
    grid = (*shape[:-1], shape[-1] // BLOCK_SIZE)
    return {tensor.sources[0]: (("U8",), (*grid, BLOCK_SIZE // 2)), tensor.scales: (("U8",), grid)}


def _check_names(expected: set[str], held: Set[str]) -> None:
    missing, unexpected = expected.difference(held), held - expected
    check_tensor_names(unexpected)
    if missing == {_HEAD}:
        raise ConvertError(
            f"The checkpoint lacks the tensor {_HEAD}, and its config.json does not tie the head "
            "to the embedding.",
            hint="Check that the download is complete. If the model has tied embeddings, "
            'config.json must state "tie_word_embeddings": true.',
        )
    if missing:
        raise ConvertError(
            f"The checkpoint lacks {_some_of(missing)}.",
            hint="Check that the download is complete, and that config.json is of the same model.",
        )
    if unexpected:
        raise ConvertError(
            f"The checkpoint holds {_some_of(unexpected)}, which gpt-oss does not have.",
            hint="Check that config.json and the weights are of the same model.",
        )


def _some_of(names: Set[str]) -> str:
    first, *rest = sorted(names)
    return f"the tensor {first}" + (f" and {len(rest)} more" if rest else "")
