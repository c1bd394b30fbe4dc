"""Read the sizes of a model's tensors and state from GGUF headers, for plans."""

import re
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import GGUFInfo, read_info, split_files

_LAYER = re.compile(r"blk\.(\d+)\.(?:ffn_(gate|up|down)_exps\.)?")

DENSE_BITS = {"q8_0": 8.5, "q5_1": 6.0, "q4_0": 4.5}
"""Bits a weight of `gptoss pull --dense`, the most exact first."""

EXPERT_PARTS = ("gate", "up", "down")


class LayerFacts(NamedTuple):
    """Bytes of one layer: its dense part, which each token reads, and experts by `EXPERT_PARTS`."""

    dense_bytes: int
    expert_bytes: tuple[int, int, int]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Sizes of a model. Bytes of tensors are those in the file, padding included.

    Attributes:
        n_expert_ff: Rows of an expert's gate and up matrices.
        n_swa: Width of the sliding window, in tokens; the even layers have it.
        input_bytes: The embedding table, which llama.cpp keeps on the host.
        output_bytes: Head and last norm.
        adapts_experts: Whether a LoRA adds to the experts of a layer.
    """

    n_ctx_train: int
    n_embd: int
    n_expert_ff: int
    n_heads: int
    n_heads_kv: int
    n_key: int
    n_swa: int
    n_experts: int
    n_experts_used: int
    n_vocab: int
    input_bytes: int
    output_bytes: int
    layers: tuple[LayerFacts, ...]
    adapts_experts: bool = False
    adapts_head: bool = False

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def layer_expert_bytes(self) -> tuple[int, ...]:
        return tuple(sum(layer.expert_bytes) for layer in self.layers)

    @cached_property
    def expert_bytes(self) -> int:
        return sum(self.layer_expert_bytes)

    @cached_property
    def weight_bytes(self) -> int:
        dense_bytes = sum(layer.dense_bytes for layer in self.layers)
        return self.input_bytes + dense_bytes + self.expert_bytes + self.output_bytes

    @property
    def used_fraction(self) -> float:
        return self.n_experts_used / self.n_experts

    @property
    def n_expert_params(self) -> int:
        """Count the weights of the experts that one token uses, in one layer."""
        return 3 * self.n_experts_used * self.n_embd * self.n_expert_ff

    @property
    def n_active_params(self) -> int:
        """Count the weights that one token is multiplied with, without the head."""
        n_attention = self.n_embd * self.n_key * 2 * (self.n_heads + self.n_heads_kv)
        return self.n_layers * (self.n_expert_params + n_attention)


def read_facts(path: Path, adapter: Path | None = None) -> ModelFacts:
    return model_facts(*map(read_info, [*split_files(path), *([adapter] if adapter else [])]))


def model_facts(info: GGUFInfo, *others: GGUFInfo) -> ModelFacts:
    sizes: dict[str, int] = {}
    for file in (info, *others):
        sizes |= {name: end - start for name, (start, end) in file.tensor_spans.items()}
    n_layers = _number(info, "block_count")
    if n_layers > len(sizes):
        raise ModelLoadError(f"the file is not a gpt-oss: it has {n_layers} layers")
    dense = [0] * n_layers
    experts = [[0, 0, 0] for _ in range(n_layers)]
    try:
        for name, n_bytes in sizes.items():
            if match := _LAYER.match(name):
                if part := match[2]:
                    experts[int(match[1])][EXPERT_PARTS.index(part)] += n_bytes
                else:
                    dense[int(match[1])] += n_bytes
        input_bytes = sizes["token_embd.weight"] + _factor_bytes(sizes, "token_embd")
        output_bytes = sizes.get("output.weight", 0) + sizes.get("output_norm.weight", 0)
    except (IndexError, KeyError) as error:
        raise ModelLoadError(f"the file is not a gpt-oss: {error}") from error
    n_experts, n_used = _number(info, "expert_count"), _number(info, "expert_used_count")
    if n_used > n_experts:
        raise ModelLoadError(f"the file is not a gpt-oss: {n_used} of {n_experts} experts are used")
    return ModelFacts(
        n_ctx_train=_number(info, "context_length"),
        n_embd=_number(info, "embedding_length"),
        n_expert_ff=_number(info, "expert_feed_forward_length"),
        n_heads=_number(info, "attention.head_count"),
        n_heads_kv=_number(info, "attention.head_count_kv"),
        n_key=_number(info, "attention.key_length"),
        n_swa=_number(info, "attention.sliding_window"),
        n_experts=n_experts,
        n_experts_used=n_used,
        n_vocab=next(t.shape[0] for t in info.tensors if t.name == "token_embd.weight"),
        input_bytes=input_bytes,
        output_bytes=output_bytes + _factor_bytes(sizes, "output"),
        layers=tuple(
            LayerFacts(n, (gate, up, down))
            for n, (gate, up, down) in zip(dense, experts, strict=True)
        ),
        adapts_experts=any("_exps.weight.lora_" in name for name in sizes),
        adapts_head=_factor_bytes(sizes, "output") > 0,
    )


def _factor_bytes(sizes: dict[str, int], tensor: str) -> int:
    return sum(sizes.get(f"{tensor}.weight.lora_{part}", 0) for part in "ab")


def published_facts(n_layers: int, n_experts: int) -> ModelFacts:
    """Return the facts of gpt-oss-20b (24, 32) or -120b (36, 128) by `gptoss convert`."""
    n_embd, n_vocab, n_query, n_kv, n_heads = 2880, 201_088, 4096, 512, 64
    table_bytes = n_embd * n_vocab * 34 // 32
    n_matrix = n_embd * (2 * n_query + 2 * n_kv)
    n_vectors = 2 * n_embd + n_query + 2 * n_kv + n_embd + n_heads + (n_embd + 1) * n_experts
    expert_bytes = n_experts * n_embd * (n_embd * 17 // 32 + 4)  # 4: the biases, one f32 a row
    layer = LayerFacts(n_matrix * 34 // 32 + 4 * n_vectors, (expert_bytes,) * 3)
    return ModelFacts(
        n_ctx_train=131_072,
        n_embd=n_embd,
        n_expert_ff=n_embd,
        n_heads=n_heads,
        n_heads_kv=8,
        n_key=64,
        n_swa=128,
        n_experts=n_experts,
        n_experts_used=4,
        n_vocab=n_vocab,
        input_bytes=table_bytes,
        output_bytes=table_bytes + 4 * n_embd,
        layers=(layer,) * n_layers,
    )


def with_dense(facts: ModelFacts, kind: str) -> ModelFacts | None:
    """Return the same model with attention, embedding and head of a smaller type, or None."""
    bits, held = DENSE_BITS[kind], round(8 * facts.input_bytes / (facts.n_embd * facts.n_vocab), 1)
    if bits >= held:
        return None
    n_matrix = 2 * facts.n_embd * facts.n_key * (facts.n_heads + facts.n_heads_kv)
    saved = round(n_matrix * (held - bits) / 8)
    return msgspec.structs.replace(
        facts,
        input_bytes=round(facts.input_bytes * bits / held),
        output_bytes=round(facts.output_bytes * bits / held),
        layers=tuple(
            layer._replace(dense_bytes=layer.dense_bytes - saved) for layer in facts.layers
        ),
    )


def _number(info: GGUFInfo, key: str) -> int:
    try:
        number = int(info.metadata[f"{info.architecture}.{key}"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelLoadError(f"the file is not a gpt-oss: it has no {key}") from error
    if number <= 0:
        raise ModelLoadError(f"the file is not a gpt-oss: its {key} is {number}")
    return number
