"""A converted model computes the same in llama.cpp as its checkpoint in transformers.

Arithmetic cannot hide an error: every tensor of our GGUF is F32, without flash attention, with an
F32 cache, and transformers rounds YaRN's correction range as ggml does. So the logits must be equal
to rounding errors; bench/results/convert.md has the costs of the product's settings.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray
from openai_harmony import HarmonyEncoding

from convert.files import STORAGE
from convert.journal import JournalState
from convert.source import Source
from convert.tensor_types import dequantize
from tests.convert.gguf_file import GgufFile, Tensor
from tests.convert.llama_cpu import F32, N_CTX, load_model, logits
from tests.convert.write_gguf import write_gguf

Logits = NDArray[np.float32]


class CheckpointReader:
    """Reads the values of a checkpoint's tensors."""

    def __init__(self, folder: Path) -> None:
        shards = Source(folder).shards(JournalState())
        self.tensors = {name: t for shard in shards for name, t in shard.tensors.items()}

    def read(self, name: str) -> NDArray[Any]:
        """Map one tensor into memory: uint8 for U8, the bits as uint16 for BF16."""
        tensor = self.tensors[name]
        values: NDArray[Any] = np.memmap(
            tensor.path, STORAGE[tensor.dtype], "r", offset=tensor.offset, shape=tensor.shape
        )
        return values


@pytest.fixture(scope="module")
def prompts(harmony_encoding: HarmonyEncoding) -> list[list[int]]:
    """A call of a tool, longer than the sliding window, and a long conversation."""
    weather = "".join(f"type t{i} = (_: {{city: string}}) => any;\n" for i in range(12))
    call = (
        f"<|start|>developer<|message|># Tools\n{weather}<|end|>"
        "<|start|>user<|message|>Weather?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Call get_weather.<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.t1 <|constrain|>json<|message|>{"city":"Tokyo"}<|call|>'
    )
    turns = "".join(
        f"<|start|>user<|message|>Remember that item {i} costs {i * 7 + 3} dollars.<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>OK, {i}.<|end|>"
        for i in range(25)
    )
    found = [harmony_encoding.encode(text, allowed_special="all") for text in (call, turns)]
    assert len(found[0]) > 128
    assert 600 < len(found[1]) <= N_CTX
    return found


def transformers_logits(checkpoint: Path, prompts: list[list[int]]) -> list[Logits]:
    """Run GptOssForCausalLM in float32 with dequantized experts and eager attention.

    gpt-oss was not trained with YaRN's correction range rounded to whole dimensions (config.json:
    truncate false), but ggml always rounds it.
    """
    import torch
    from transformers import AutoConfig, GptOssForCausalLM
    from transformers.utils.quantization_config import Mxfp4Config

    config = AutoConfig.from_pretrained(checkpoint)
    config.rope_parameters["truncate"] = True
    model = GptOssForCausalLM.from_pretrained(
        checkpoint,
        config=config,
        quantization_config=Mxfp4Config(dequantize=True),
        dtype=torch.float32,
        attn_implementation="eager",
    )
    model.eval()  # type: ignore[no-untyped-call]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    reader = CheckpointReader(checkpoint)
    for layer, module in enumerate(model.model.layers):
        name = f"model.layers.{layer}.mlp.experts.down_proj"
        values = dequantize(reader.read(f"{name}_blocks"), reader.read(f"{name}_scales"))
        theirs = module.mlp.experts.down_proj.numpy(force=True)
        np.testing.assert_array_equal(theirs, values.transpose(0, 2, 1))
    with torch.inference_mode():
        return [model(torch.tensor([tokens])).logits[0].numpy() for tokens in prompts]


@pytest.fixture(scope="module")
def f32_model(bf16_file: GgufFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Our GGUF with every tensor as F32: then ggml multiplies without rounding activations."""
    path = tmp_path_factory.mktemp("f32") / "f32.gguf"
    tensors = {
        name: Tensor(
            GGMLQuantizationType.F32, tensor.shape, tensor.values().view(np.uint8).reshape(-1)
        )
        for name, tensor in bf16_file.tensors.items()
    }
    write_gguf(path, bf16_file.keys, tensors)
    with load_model(path) as model:
        yield model
    path.unlink()


def log_softmax(row: Logits) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = row.astype(np.float64) - row.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.mark.nightly
def test_conversion_is_exact(
    nano_checkpoint: Path, f32_model: Any, prompts: list[list[int]]
) -> None:
    found = logits(f32_model, prompts, flash_attention=False, kv_type=F32)
    wanted = transformers_logits(nano_checkpoint, prompts)
    for expected, row in zip(np.concatenate(wanted), np.concatenate(list(found)), strict=True):
        p, q = log_softmax(expected), log_softmax(row)
        assert np.exp(p) @ (p - q) < 1e-7
        assert p.argmax() == q.argmax()
