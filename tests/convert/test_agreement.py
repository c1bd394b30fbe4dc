"""The converted model computes what the checkpoint says: llama.cpp against transformers.

Two questions, kept apart. *Is the conversion right?* is answered where arithmetic cannot hide an
error: every tensor of our GGUF as F32, no flash attention, an F32 cache, and transformers rounding
YaRN's correction range as ggml does; then the logits must be equal to rounding errors. *What does a
user get?* is answered with the settings of the product, where KL divergence stays small.
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
    ReasoningEffort,
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
def prompts(harmony_encoding: HarmonyEncoding) -> dict[str, list[int]]:
    encoding = harmony_encoding
    items = [(f"Remember that item {i} costs {i * 7 + 3} dollars.", f"OK, {i}.") for i in range(23)]
    capital = render(encoding, [("What is the capital of France?", None)])
    addition = render(encoding, [("What is 17 + 25?", None)], effort=ReasoningEffort.HIGH)
    addition += encoding.encode(
        "<|channel|>analysis<|message|>We need to add 17 and 25.<|end|><|start|>assistant"
        "<|channel|>final<|message|>17 + 25 = 42.<|return|>",
        allowed_special="all",
    )
    weather = render(encoding, [("What is the weather in Tokyo?", None)], tools=[WEATHER])
    weather += encoding.encode(
        "<|channel|>analysis<|message|>Call get_weather.<|end|><|start|>assistant<|channel|>"
        'commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Tokyo"}<|call|>',
        allowed_special="all",
    )
    long = render(encoding, [*items, ("How much does item 3 cost?", None)])
    assert len(weather) > 128  # the sliding window
    assert 600 < len(long) <= N_CTX
    return {"capital": capital, "addition": addition, "weather": weather, "long": long}


def render(
    encoding: HarmonyEncoding,
    turns: list[tuple[str, str | None]],
    *,
    effort: ReasoningEffort = ReasoningEffort.MEDIUM,
    tools: list[ToolDescription] | None = None,
) -> list[int]:
    system = SystemContent.new().with_reasoning_effort(effort)
    developer = DeveloperContent.new().with_instructions("You are a helpful assistant.")
    if tools:
        developer = developer.with_function_tools(tools)
    messages = [
        Message.from_role_and_content(Role.SYSTEM, system),
        Message.from_role_and_content(Role.DEVELOPER, developer),
    ]
    for user, assistant in turns:
        messages.append(Message.from_role_and_content(Role.USER, user))
        if assistant is not None:
            messages.append(Message.from_role_and_content(Role.ASSISTANT, assistant))
    conversation = Conversation.from_messages(messages)
    return list(encoding.render_conversation_for_completion(conversation, Role.ASSISTANT))


def transformers_logits(
    checkpoint: Path, prompts: dict[str, list[int]], *, truncate: bool, is_mxfp4: bool = True
) -> dict[str, Logits]:
    """Run GptOssForCausalLM in float32 with dequantized experts and eager attention.

    `truncate` rounds the correction range of YaRN to whole dimensions. gpt-oss was not trained so
    (config.json: truncate false), but ggml always does it.
    """
    import torch
    from transformers import AutoConfig, GptOssForCausalLM
    from transformers.utils.quantization_config import Mxfp4Config

    config = AutoConfig.from_pretrained(checkpoint)
    config.rope_parameters["truncate"] = truncate
    model = GptOssForCausalLM.from_pretrained(
        checkpoint,
        config=config,
        quantization_config=Mxfp4Config(dequantize=True) if is_mxfp4 else None,
        dtype=torch.float32,
        attn_implementation="eager",
    )
    model.eval()  # type: ignore[no-untyped-call]
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    if is_mxfp4:
        assert_experts_dequantized(checkpoint, model)
    with torch.inference_mode():
        return {
            name: model(torch.tensor([tokens])).logits[0].numpy()
            for name, tokens in prompts.items()
        }


def assert_experts_dequantized(checkpoint: Path, model: Any) -> None:
    reader = CheckpointReader(checkpoint)
    for layer, module in enumerate(model.model.layers):
        name = f"model.layers.{layer}.mlp.experts.down_proj"
        values = dequantize(reader.read(f"{name}_blocks"), reader.read(f"{name}_scales"))
        theirs = module.mlp.experts.down_proj.numpy(force=True)
        np.testing.assert_array_equal(theirs, values.transpose(0, 2, 1))


@pytest.fixture(scope="module")
def ggml_reference(nano_checkpoint: Path, prompts: dict[str, list[int]]) -> dict[str, Logits]:
    """The same with ggml's idea of YaRN."""
    return transformers_logits(nano_checkpoint, prompts, truncate=True)


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


class Agreement:
    """KL divergence (nats) and equal top-1 tokens, over every position of every prompt."""

    def __init__(self, expected: dict[str, Logits], found: dict[str, Logits]) -> None:
        divergences = [kl_divergence(expected[name], found[name]) for name in expected]
        kl = np.concatenate(divergences)
        same = [expected[n].argmax(-1) == found[n].argmax(-1) for n in expected]
        self.mean_kl, self.max_kl = float(kl.mean()), float(kl.max())
        self.top_1 = float(np.concatenate(same).mean())

    def __repr__(self) -> str:
        return f"KL mean {self.mean_kl:.1e} max {self.max_kl:.1e} top-1 {self.top_1:.2%}"


def kl_divergence(expected: Logits, found: Logits) -> NDArray[np.float64]:
    return np.array([_kl(a, b) for a, b in zip(expected, found, strict=True)])


def _kl(expected: Logits, found: Logits) -> float:
    p, q = _log_softmax(expected), _log_softmax(found)
    return float(np.exp(p) @ (p - q))


def _log_softmax(row: Logits) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = row.astype(np.float64) - row.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted


def run(model: Any, prompts: dict[str, list[int]], **settings: Any) -> dict[str, Logits]:
    return dict(zip(prompts, logits(model, prompts.values(), **settings), strict=True))


def test_conversion_is_exact(
    f32_model: Any, ggml_reference: dict[str, Logits], prompts: dict[str, list[int]]
) -> None:
    found = run(f32_model, prompts, flash_attention=False, kv_type=F32)
    agreement = Agreement(ggml_reference, found)
    print("F32 everywhere:", agreement)
    assert agreement.max_kl < 1e-7
    assert agreement.top_1 == 1.0


def test_bf16_experts_hold_the_same_numbers_kept_or_rounded(
    fine_tune: Path, bf16_file: GgufFile, tmp_path: Path
) -> None:
    """What was MXFP4 once loses nothing on the way back, so all three files are one model."""
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
