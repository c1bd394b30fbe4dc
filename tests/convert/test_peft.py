"""Adapters as PEFT trains, saves and merges them, on a small random gpt-oss of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from convert import convert_checkpoint
from tests.convert.gguf_file import read_gguf
from tests.convert.tiny import tiny_config, tiny_tensors, write_tiny

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*did not match any targeted module:RuntimeWarning"),
]
CONFIG = tiny_config(num_hidden_layers=2)
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "rank-stabilised": {"target_modules": ["q_proj"], "use_rslora": True, "r": 16},
    "patterns": {
        "target_modules": ["q_proj", "o_proj"],
        "rank_pattern": {"o_proj": 2},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 64},
    },
    "ends": {"target_modules": ["embed_tokens", "lm_head"]},
    "experts": {"target_modules": ["q_proj"], "target_parameters": EXPERTS},
    "gate and up": {"target_modules": [], "target_parameters": EXPERTS[:1]},
    "down, rank-stabilised": {
        "target_modules": [], "target_parameters": EXPERTS[1:], "use_rslora": True,
    },
    "router": {"target_modules": [], "target_parameters": ["mlp.router.weight"]},
    "patterns of experts": {
        "target_modules": [],
        "target_parameters": EXPERTS,
        "rank_pattern": {"mlp.experts.down_proj": 2},
        "alpha_pattern": {"mlp.experts.gate_up_proj": 32},
    },
}  # fmt: skip
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
}


def as_llama_cpp_names(weights: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    found = {}
    for name, tensor in weights.items():
        values, (*layer, rest) = tensor.numpy(), name.removeprefix("model.layers.").split(".", 1)
        stem = f"blk.{layer[0]}." if name.startswith("model.layers.") else ""
        if rest.endswith("experts.gate_up_proj"):
            found[f"{stem}ffn_gate_exps.weight"] = values[..., ::2].swapaxes(1, 2)
            found[f"{stem}ffn_up_exps.weight"] = values[..., 1::2].swapaxes(1, 2)
        elif rest.endswith("experts.down_proj"):
            found[f"{stem}ffn_down_exps.weight"] = values.swapaxes(1, 2)
        elif ours := NAMES.get(rest if stem else name):
            found[stem + ours] = values
    return found


@pytest.mark.parametrize("name", ADAPTERS)
def test_as_peft_merges_it(tmp_path: Path, name: str) -> None:
    import torch  # here, as they take seconds, also where these tests do not run
    from peft import LoraConfig, get_peft_model
    from transformers import GptOssForCausalLM

    torch.manual_seed(1)
    tensors = tiny_tensors(CONFIG, experts="bf16")
    base = write_tiny(tmp_path / "base", config=CONFIG, tensors=tensors)
    plain = GptOssForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = as_llama_cpp_names(plain.state_dict())
    before = {tensor: values.copy() for tensor, values in before.items()}
    config = {"r": 4, "lora_alpha": 8, "init_lora_weights": False} | ADAPTERS[name]
    adapted = get_peft_model(plain, LoraConfig(**config))
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    merged = as_llama_cpp_names(adapted.merge_and_unload().state_dict())
    path = tmp_path / "m.gguf"
    convert_checkpoint(base, path, adapter=tmp_path / "adapter", dense="bf16", experts="bf16")
    stored = read_gguf(path).tensors
    changed = 0
    for tensor, values in merged.items():
        changed += not np.allclose(values, before[tensor])
        np.testing.assert_allclose(stored[tensor].values(), values, rtol=2**-8, atol=1e-5)
    assert changed
