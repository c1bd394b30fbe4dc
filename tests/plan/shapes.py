"""GGUFs of gpt-oss-20b's and -120b's exact shapes that take no room: all weights are holes."""

import shutil
from pathlib import Path

import msgspec

from convert.pipeline import plan_conversion
from tests.convert.large import write_shard
from tests.convert.tiny import tiny_shapes, write_json

N_LAYERS = {"20b": 24, "120b": 36}
N_EXPERTS = {"20b": 32, "120b": 128}


def write_sparse_gguf(size: str, folder: Path, nano: Path) -> Path:
    """Write `folder/SIZE.gguf` as the converter lays it out, with the vocabulary of `nano`."""
    source = folder / f"checkpoint-{size}"
    shutil.copytree(nano, source, ignore=shutil.ignore_patterns("*.safetensors"))
    config = msgspec.json.decode((source / "config.json").read_bytes())
    config |= {"num_hidden_layers": N_LAYERS[size], "num_local_experts": N_EXPERTS[size]}
    config |= {"hidden_size": 2880, "intermediate_size": 2880}
    config |= {"num_attention_heads": 64, "num_key_value_heads": 8}
    config["layer_types"] = ["sliding_attention", "full_attention"] * (N_LAYERS[size] // 2)
    write_json(source / "config.json", config)
    write_shard(source / "model.safetensors", tiny_shapes(config), seed=None)
    file = plan_conversion(source, folder / f"{size}.gguf").files[0]
    with file.path.open("wb") as gguf:
        gguf.write(file.header)
        gguf.truncate(file.n_bytes)
    return file.path
