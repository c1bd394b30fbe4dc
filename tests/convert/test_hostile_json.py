"""Broken config.json, tokenizers and model cards."""

from pathlib import Path
from typing import Any

import pytest

from tests.convert.refusing import refuse
from tests.convert.tiny import tiny_config, write_json


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_hidden_layers": None}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"num_hidden_layers": 10**12}, "config.json does not fit gpt-oss: .*num_hidden_layers"),
        ({"vocab_size": 10**12}, "config.json does not fit gpt-oss: .*vocab_size"),
        ({"head_dim": "64"}, "config.json does not fit gpt-oss: .*head_dim"),
        ({"hidden_size": 0}, "config.json does not fit gpt-oss: .*hidden_size"),
        ({"rope_theta": None, "rope_scaling": "x"}, "does not fit gpt-oss: .*rope_theta"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks original_max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type 'llama3', which is not known"),
        ({"architectures": ["LlamaForCausalLM"]}, "not a gpt-oss checkpoint: .*LlamaForCausalLM"),
        (
            {"architectures": ["GptOssForCausalLM", "LlamaForCausalLM"]},
            "states 2 architectures: .*LlamaForCausalLM",
        ),
        ({"architectures": None}, "not a gpt-oss checkpoint"),
        ({"layer_types": ["full_attention"]}, "layer_types in a way that llama.cpp cannot run"),
        ({"swiglu_limit": 5.0}, "swiglu_limit of 5.0"),
        ({"hidden_size": 2**62}, "config.json does not fit gpt-oss: .*hidden_size"),
        (
            {"num_hidden_layers": 1000, "layer_types": None},
            "lacks .* model.layers.1.* and [0-9]+ more",
        ),
        ({"intermediate_size": 1 << 24}, r"is (U8|BF16) .* where"),
        ({"max_position_embeddings": 2**64}, "does not fit gpt-oss: .*max_position_embeddings"),
        ({"rms_norm_eps": 0}, "does not fit gpt-oss: .*rms_norm_eps"),
        ({"rope_theta": 1e300}, "does not fit gpt-oss: rope_theta must be"),
        ({"num_experts_per_tok": 6}, "more experts per token than there are experts"),
        ({"num_key_value_heads": 2}, "3 attention heads, not a multiple of the 2 key-value heads"),
        ({"num_hidden_layers": True}, "does not fit gpt-oss: .*num_hidden_layers"),
        ({"intermediate_size": 48}, "intermediate_size is 48 .* not a multiple of 32"),
        (
            {"head_dim": 33, "num_attention_heads": 32, "num_key_value_heads": 32},
            "head_dim of 33; it must be even",
        ),
        ({"num_local_experts": 6}, r"is BF16 \[5.*\] where .* BF16 \[6"),
    ],
)
def test_wrong_config(tiny_checkpoint: Path, change: dict[str, Any], match: str) -> None:
    config = {k: v for k, v in (tiny_config() | change).items() if v is not None}
    write_json(tiny_checkpoint / "config.json", config)
    refuse(tiny_checkpoint, match)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_json(tiny_checkpoint: Path, name: str) -> None:
    (tiny_checkpoint / name).unlink()
    refuse(tiny_checkpoint, f"{name} is missing")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_broken_json(tiny_checkpoint: Path, name: str, content: bytes) -> None:
    (tiny_checkpoint / name).write_bytes(content)
    refuse(tiny_checkpoint, f"{name} is not")


def test_token_beyond_the_embedding(tiny_checkpoint: Path) -> None:
    path = tiny_checkpoint / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b'"abc":9', b'"abc":24'))
    refuse(tiny_checkpoint, "token id 24; vocab_size is 24")


def test_special_id_beyond_the_embedding(tiny_checkpoint: Path) -> None:
    write_json(tiny_checkpoint / "generation_config.json", {"pad_token_id": 1000})
    refuse(tiny_checkpoint, "pad_token_id is 1000 in .*, beyond vocab_size, 24")


def test_chat_template_that_is_no_text(tiny_checkpoint: Path) -> None:
    (tiny_checkpoint / "chat_template.jinja").write_bytes(b"\xff\xfe")
    refuse(tiny_checkpoint, "chat_template.jinja is not text in UTF-8")
