"""A converted model computes the same in llama.cpp as its checkpoint in transformers.

Arithmetic cannot hide an error: every tensor of our GGUF is F32, without flash attention, with an
F32 cache, and transformers rounds YaRN's correction range as ggml does. So the logits must be equal
to rounding errors; bench/results/convert.md says what the settings of the product cost.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from numpy.typing import NDArray
from openai_harmony import (
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    Message,
    Role,
    SystemContent,
    ToolDescription,
)

from convert import ExpertType, convert_checkpoint
from convert.tensor_types.mxfp4 import dequantize
from tests.convert.gguf_file import GgufFile, read_gguf
from tests.convert.llama_cpu import F32, N_CTX, load_model, logits
from tests.convert.reader import CheckpointReader
from tests.convert.tiny import Tensors, write_json, write_safetensors

Logits = NDArray[np.float32]

EXPERT_TYPES: tuple[ExpertType, ...] = ("mxfp4", "bf16")

WEATHER = ToolDescription.new(
    "get_weather",
    "Gets the weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)


@pytest.fixture(scope="module")
def prompts(harmony_encoding: HarmonyEncoding) -> list[list[int]]:
    """A call of a tool, longer than the sliding window, and a long conversation."""
    items = [(f"Remember that item {i} costs {i * 7 + 3} dollars.", f"OK, {i}.") for i in range(23)]
    weather = render(harmony_encoding, [("What is the weather in Tokyo?", None)], tools=[WEATHER])
    weather += harmony_encoding.encode(
        "<|channel|>analysis<|message|>Call get_weather.<|end|><|start|>assistant<|channel|>"
        'commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Tokyo"}<|call|>',
        allowed_special="all",
    )
    long = render(harmony_encoding, [*items, ("How much does item 3 cost?", None)])
    assert len(weather) > 128
    assert 600 < len(long) <= N_CTX
    return [weather, long]


def render(
    encoding: HarmonyEncoding,
    turns: list[tuple[str, str | None]],
    tools: list[ToolDescription] | None = None,
) -> list[int]:
    developer = DeveloperContent.new().with_instructions("You are a helpful assistant.")
    if tools:
        developer = developer.with_function_tools(tools)
    messages = [
        Message.from_role_and_content(Role.SYSTEM, SystemContent.new()),
        Message.from_role_and_content(Role.DEVELOPER, developer),
    ]
    for user, assistant in turns:
        messages.append(Message.from_role_and_content(Role.USER, user))
        if assistant is not None:
            messages.append(Message.from_role_and_content(Role.ASSISTANT, assistant))
    conversation = Conversation.from_messages(messages)
    return list(encoding.render_conversation_for_completion(conversation, Role.ASSISTANT))


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
def fine_tune(nano_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nano with bf16 experts, as transformers saves a fine-tune; every value is the same."""
    reader = CheckpointReader(nano_checkpoint)
    tensors: Tensors = {}
    for name, tensor in reader.tensors.items():
        if name.endswith("_blocks"):
            source = name.removesuffix("_blocks")
            values = dequantize(reader.read(name), reader.read(f"{source}_scales"))
            bits = (values.swapaxes(1, 2).copy().view(np.uint32) >> 16).astype(np.uint16)
            tensors[source] = ("BF16", bits)
        elif not name.endswith("_scales"):
            tensors[name] = (tensor.dtype, reader.read(name))
    folder = tmp_path_factory.mktemp("fine-tune") / nano_checkpoint.name
    folder.mkdir()
    for path in nano_checkpoint.glob("*.json"):
        shutil.copyfile(path, folder / path.name)
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    config.pop("quantization_config")
    write_json(folder / "config.json", config)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


@pytest.fixture(scope="module")
def f32_model(bf16_file: GgufFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Our GGUF with every tensor as F32: then ggml multiplies without rounding activations."""
    path = tmp_path_factory.mktemp("f32") / "f32.gguf"
    writer = GGUFWriter(path, "gpt-oss")
    for key, (kind, value) in bf16_file.keys.items():
        if key != "general.architecture":
            kinds = [GGUFValueType[k] for k in kind.split("/")]
            writer.add_key_value(key, value, *kinds)
    for name, tensor in bf16_file.tensors.items():
        values = tensor.values()
        writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with load_model(path) as model:
        yield model
    path.unlink()


def log_softmax(row: Logits) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = row.astype(np.float64) - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def test_conversion_is_exact(
    nano_checkpoint: Path, f32_model: Any, prompts: list[list[int]]
) -> None:
    found = logits(f32_model, prompts, flash_attention=False, kv_type=F32)
    wanted = transformers_logits(nano_checkpoint, prompts)
    for expected, row in zip(np.concatenate(wanted), np.concatenate(list(found)), strict=True):
        p, q = log_softmax(expected), log_softmax(row)
        assert np.exp(p) @ (p - q) < 1e-7
        assert p.argmax() == q.argmax()


def test_bf16_experts_hold_the_same_numbers_kept_or_rounded(
    fine_tune: Path, bf16_file: GgufFile, tmp_path: Path
) -> None:
    """Values that were MXFP4 once survive the way back, so all three files are one model."""
    for experts in EXPERT_TYPES:
        convert_checkpoint(fine_tune, tmp_path / experts, dense="bf16", experts=experts)
        file = read_gguf(tmp_path / experts)
        assert file.tensors.keys() == bf16_file.tensors.keys()
        for name, tensor in file.tensors.items():
            expected = bf16_file.tensors[name]
            if expected.qtype == GGMLQuantizationType.MXFP4:
                assert tensor.qtype.name.lower() == experts
                np.testing.assert_array_equal(tensor.values(), expected.values())
            else:
                assert tensor.data.tobytes() == expected.data.tobytes()
