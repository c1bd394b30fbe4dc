"""Write a Hugging Face checkpoint of gpt-oss's exact shapes with random weights, for timing only.

    python bench/synth_checkpoint.py {20b,120b} DIR [--layers N]

The tokenizer is the real one, so the result converts, loads and serves like the original; only its
answers are noise. Shards hold two layers each.
"""

import argparse
import json
import shutil
import tempfile
from math import prod
from pathlib import Path

import numpy as np

from gptoss_local.models.nano.materialize import materialize

LAYERS_EXPERTS = {"20b": (24, 32), "120b": (36, 128)}
N_EMBD, N_VOCAB, N_Q, N_KV, N_HEADS = 2880, 201_088, 4096, 512, 64
POOL_BYTES = 64 << 20  # random bytes that all tensors are cut from

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=LAYERS_EXPERTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, help="fewer than the original; an even number")
    arguments = parser.parse_args()
    n_layers, n_experts = LAYERS_EXPERTS[arguments.size]
    n_layers = arguments.layers or n_layers
    arguments.folder.mkdir(parents=True)
    write_configuration(arguments.folder, n_layers, n_experts)
    shards = [
        layer_tensors(layer, n_experts) | layer_tensors(layer + 1, n_experts)
        for layer in range(0, n_layers, 2)
    ]
    shards.append({name: ("BF16", shape) for name, shape in outer_tensors().items()})
    weight_map = {}
    for i, tensors in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write_shard(arguments.folder / name, tensors, seed=i)
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (arguments.folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_configuration(folder: Path, n_layers: int, n_experts: int) -> None:
    """Write nano's configuration and tokenizer with the sizes of the large model."""
    with tempfile.TemporaryDirectory() as temporary:
        materialize(Path(temporary))
        for path in Path(temporary).glob("*.json"):
            shutil.copy(path, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "num_hidden_layers": n_layers,
        "num_local_experts": n_experts,
        "hidden_size": N_EMBD,
        "intermediate_size": N_EMBD,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": 8,
        "layer_types": ["sliding_attention", "full_attention"] * (n_layers // 2),
    }
    (folder / "config.json").write_text(json.dumps(config))


def outer_tensors() -> dict[str, tuple[int, ...]]:
    return {
        "model.embed_tokens.weight": (N_VOCAB, N_EMBD),
        "model.norm.weight": (N_EMBD,),
        "lm_head.weight": (N_VOCAB, N_EMBD),
    }


def layer_tensors(layer: int, n_experts: int) -> Tensors:
    dense = {
        "input_layernorm.weight": (N_EMBD,),
        "post_attention_layernorm.weight": (N_EMBD,),
        "self_attn.q_proj.weight": (N_Q, N_EMBD),
        "self_attn.q_proj.bias": (N_Q,),
        "self_attn.k_proj.weight": (N_KV, N_EMBD),
        "self_attn.k_proj.bias": (N_KV,),
        "self_attn.v_proj.weight": (N_KV, N_EMBD),
        "self_attn.v_proj.bias": (N_KV,),
        "self_attn.o_proj.weight": (N_EMBD, N_Q),
        "self_attn.o_proj.bias": (N_EMBD,),
        "self_attn.sinks": (N_HEADS,),
        "mlp.router.weight": (n_experts, N_EMBD),
        "mlp.router.bias": (n_experts,),
        "mlp.experts.gate_up_proj_bias": (n_experts, 2 * N_EMBD),
        "mlp.experts.down_proj_bias": (n_experts, N_EMBD),
    }
    packed: dict[str, tuple[int, ...]] = {}
    for name, n_rows in (("gate_up_proj", 2 * N_EMBD), ("down_proj", N_EMBD)):
        packed[f"mlp.experts.{name}_blocks"] = (n_experts, n_rows, N_EMBD // 32, 16)
        packed[f"mlp.experts.{name}_scales"] = (n_experts, n_rows, N_EMBD // 32)
    prefix = f"model.layers.{layer}."
    tensors: Tensors = {prefix + name: ("BF16", shape) for name, shape in dense.items()}
    return tensors | {prefix + name: ("U8", shape) for name, shape in packed.items()}


def write_shard(path: Path, tensors: Tensors, *, seed: int) -> None:
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + prod(shape) * (2 if dtype == "BF16" else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    pools = random_pools(np.random.default_rng(seed))
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name, (dtype, shape) in tensors.items():
            pool = pools["scales" if name.endswith("_scales") else dtype]
            n_left = prod(shape) * (2 if dtype == "BF16" else 1)
            while n_left:
                n_left -= file.write(pool[:n_left])


def random_pools(rng: np.random.Generator) -> dict[str, memoryview]:
    """Raw bytes per kind: MXFP4 codes, scales near 2^-7, bf16 values of about +-0.02."""
    codes = rng.integers(0, 256, POOL_BYTES, np.uint8)
    scales = rng.integers(118, 122, POOL_BYTES, np.uint8)
    bf16 = rng.integers(0x3C00, 0x3CC0, POOL_BYTES // 2, np.uint16)
    bf16 |= rng.integers(0, 2, POOL_BYTES // 2, np.uint16) << np.uint16(15)
    return {"U8": codes.data, "scales": scales.data, "BF16": bf16.view(np.uint8).data}


if __name__ == "__main__":
    main()
