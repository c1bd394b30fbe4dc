"""OpenAI's own layout, `original/`: the same weights must give the same GGUF."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from convert import convert_checkpoint
from convert.checkpoint import read_index, read_shard, read_tensors
from convert.config import read_config
from gptoss_local.base.errors import ConvertError
from tests.convert.tiny import (
    tiny_tensors,
    to_original,
    write_json,
    write_safetensors,
    write_tiny,
)


def test_index_and_shards_go_by_one_set_of_names(tmp_path: Path) -> None:
    """Readers of single shards and of the whole folder see the same tensors."""
    folder = write_tiny(tmp_path / "tiny", layout="original", n_shards=3)
    tensors = read_tensors(folder)
    index = read_index(folder)
    assert index.keys() == tensors.keys()
    for shard in set(index.values()):
        names = [name for name in index if index[name] == shard]
        assert read_shard(folder / shard, names) == {name: tensors[name] for name in names}


def test_index_with_one_tensor_under_both_names(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original", n_shards=3)
    path = folder / "model.safetensors.index.json"
    index = msgspec.json.decode(path.read_bytes())["weight_map"]
    edit_json(path, weight_map=index | {"model.norm.weight": index["norm.scale"]})
    with pytest.raises(ConvertError, match=r"index.json holds model.norm.weight under two names"):
        read_tensors(folder)


def test_config_says_the_same(tmp_path: Path) -> None:
    theirs, ours = write_tiny(tmp_path / "a"), write_tiny(tmp_path / "b", layout="original")
    config = read_config(ours)
    assert config == msgspec.structs.replace(read_config(theirs), layer_types=None)
    assert config.max_position_embeddings == 131072
    assert config.rms_norm_eps == 1e-5


def test_without_scaling_there_is_no_yarn(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "original", layout="original")
    edit_json(folder / "config.json", rope_scaling_factor=1.0)
    config = read_config(folder)
    assert config.rope.rope_type == "default"
    assert config.max_position_embeddings == 4096


def test_the_folder_around_it_may_be_named(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    write_tiny(folder / "original", layout="original")
    write_tiny(tmp_path / "tokenizer")
    for source, name in ((folder, "around"), (folder / "original", "itself")):
        convert_checkpoint(source, tmp_path / name, tokenizer=tmp_path / "tokenizer")
    assert (tmp_path / "around").read_bytes() == (tmp_path / "itself").read_bytes()


def test_tokenizer_of_the_folder_around_it_is_used(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()  # only the small files of that layout were fetched
    write_tiny(folder / "original", layout="original")
    convert_checkpoint(folder, tmp_path / "tiny.gguf")


def test_hugging_face_wins_where_both_are(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny")
    convert_checkpoint(folder, tmp_path / "alone.gguf")
    write_tiny(folder / "original", layout="original", tensors=tiny_tensors(seed=1))
    convert_checkpoint(folder, tmp_path / "both.gguf")
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "both.gguf").read_bytes()


def test_no_tokenizer(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny" / "original", layout="original")
    with pytest.raises(ConvertError, match=r"tokenizer.json is missing") as caught:
        convert_checkpoint(folder, tmp_path / "tiny.gguf")
    assert "--tokenizer" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_experts": 4}, r"is BF16 \[5.*\] where the model's config.json calls for BF16 \[4"),
        ({"num_attention_heads": 2}, r"attn.qkv.weight in .* is BF16 \[160, 64\] .* 128 rows"),
        ({"experts_per_token": 6}, "more experts per token"),
        (
            {"experts_per_token": None},
            "config.json does not fit gpt-oss: experts_per_token must be",
        ),
        ({"rope_scaling_factor": 1e300}, "config.json does not fit gpt-oss: .*rope_scaling_factor"),
        ({"initial_context_length": 2**40}, "config.json does not fit.*initial_context_length"),
        ({"rope_ntk_beta": -1}, "config.json does not fit gpt-oss: .*beta_fast"),
        ({"swiglu_limit": 6}, "swiglu_limit of 6.0"),
        ({"num_hidden_layers": 2}, "lacks the tensor model.layers.1"),
    ],
)
def test_wrong_config(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original")
    edit_json(folder / "config.json", **changes)
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(folder, tmp_path / "tiny.gguf")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t: t.pop("block.0.attn.sinks"), "lacks the tensor model.layers.0.self_attn.sinks"),
        (lambda t: t.pop("block.0.attn.qkv.bias"), "lacks .*self_attn.k_proj.bias and 2 more"),
        (lambda t: t.update({"block.0.x": t["norm.scale"]}), "holds the tensor block.0.x, which"),
        (lambda t: t.update({"model.norm.weight": t["norm.scale"]}), "norm.weight under two names"),
        (
            lambda t: t.update({"block.0.attn.qkv.bias": ("F16", np.zeros(160, np.uint16))}),
            r"block.0.attn.qkv.bias in .* is F16 \[160\] where",
        ),
        (
            lambda t: t.update({"block.0.attn.qkv.bias": ("BF16", np.zeros((), np.uint16))}),
            r"block.0.attn.qkv.bias in .* is BF16 \[\] where",
        ),
    ],
)
def test_wrong_tensors(tmp_path: Path, edit: Any, match: str) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original")
    tensors = to_original(tiny_tensors())
    edit(tensors)
    (folder / "dtypes.json").unlink()
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ConvertError, match=match):
        convert_checkpoint(folder, tmp_path / "tiny.gguf")


@pytest.mark.parametrize("dtype", ["FP4", "F32"])
def test_dtypes_that_lie(tmp_path: Path, dtype: str) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original")
    edit_json(folder / "dtypes.json", **{"block.0.attn.sinks": dtype})
    with pytest.raises(ConvertError, match=rf"says that block.0.attn.sinks is {dtype}; .* BF16"):
        convert_checkpoint(folder, tmp_path / "tiny.gguf")


def test_dtypes_are_not_needed(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "tiny", layout="original")
    (folder / "dtypes.json").unlink()
    write_tiny(tmp_path / "tokenizer")
    convert_checkpoint(folder, tmp_path / "tiny.gguf", tokenizer=tmp_path / "tokenizer")


def edit_json(path: Path, **changes: Any) -> None:
    write_json(path, msgspec.json.decode(path.read_bytes()) | changes)
