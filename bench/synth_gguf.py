"""Write a GGUF of gpt-oss's exact shapes with random weights, for timing only.

    python bench/synth_gguf.py {20b,120b} FILE.gguf [--dense q8_0] [--sparse]

Header and tokenizer are the converter's own, so the file loads and serves like the original; only
its answers are noise. 120b takes 63 GB: half a minute where the disk is memory. `--sparse` leaves
all weights out: enough for `bench/plan_memory.py`, which only asks for their sizes.
"""

import argparse
import json
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType

from convert.pipeline import plan_conversion
from convert.tensor_map import DenseType
from convert.tensor_types import BY_QTYPE, DENSE_TYPES, MXFP4
from gptoss_local.base.formats.gguf_file import TensorInfo, read_info
from gptoss_local.models.nano.materialize import materialize

LAYERS_EXPERTS = {"20b": (24, 32), "120b": (36, 128)}
N_EMBD, N_VOCAB, N_Q, N_KV, N_HEADS = 2880, 201_088, 4096, 512, 64
F32 = 0  # ggml_type, ggml.h
N_POOL_BLOCKS = 1 << 21  # random blocks that all experts are cut from
N_DENSE_VALUES = 1 << 21  # and values that the other matrices are
ALIGNMENT = 32  # general.alignment

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=LAYERS_EXPERTS)
    parser.add_argument("gguf", type=Path)
    names = [*DENSE_TYPES]
    parser.add_argument("--dense", choices=names, default="q8_0")
    parser.add_argument("--sparse", action="store_true")
    arguments = parser.parse_args()
    write_header(arguments.size, arguments.gguf, arguments.dense)
    if not arguments.sparse:
        fill(arguments.gguf)


def random_model(size: str, folder: Path) -> Path:
    path = folder / f"{size}.gguf"
    write_header(size, path)
    fill(path)
    return path


def write_header(size: str, target: Path, dense: DenseType = "q8_0") -> None:
    """Write what the converter writes for a checkpoint of these shapes, without the weights."""
    with tempfile.TemporaryDirectory() as folder:
        write_sparse_checkpoint(Path(folder), *LAYERS_EXPERTS[size])
        file = plan_conversion(Path(folder), target, dense=dense).files[0]
        with file.path.open("wb") as gguf:
            gguf.write(file.header)
            gguf.truncate(file.n_bytes)


def write_sparse_checkpoint(folder: Path, n_layers: int, n_experts: int) -> None:
    write_configuration(folder, n_layers, n_experts)
    shapes = {name: ("BF16", shape) for name, shape in outer_tensors().items()}
    for layer in range(n_layers):
        shapes |= layer_tensors(layer, n_experts)
    header, end = {}, 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + prod(shape) * (2 if dtype == "BF16" else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    head = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + end)


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


def fill(path: Path) -> None:
    """Write the weights with as many threads as there are cores."""
    info = read_info(path)
    start = -(-info.n_header_bytes // ALIGNMENT) * ALIGNMENT
    pools = random_pools(np.random.default_rng(0), {tensor.type_id for tensor in info.tensors})
    file = os.open(path, os.O_WRONLY)

    def write(tensor: TensorInfo) -> None:
        kind = BY_QTYPE[GGMLQuantizationType(tensor.type_id)]
        n_left = prod(tensor.shape) // kind.n_values * kind.layout.itemsize
        pool, position = pool_of(tensor, pools), start + tensor.offset
        while n_left:
            n_written = os.pwrite(file, pool[:n_left], position)
            position, n_left = position + n_written, n_left - n_written

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(write, info.tensors))
    os.close(file)


def random_pools(rng: np.random.Generator, type_ids: set[int]) -> dict[object, memoryview]:
    """Raw bytes by kind: MXFP4 scales near 2^-8, matrices of each type and routers around 0.05."""
    experts = rng.integers(0, 256, (N_POOL_BLOCKS, MXFP4.layout.itemsize), np.uint8)
    experts[:, 0] = rng.integers(117, 121, N_POOL_BLOCKS)
    values = 0.02 * rng.standard_normal(N_DENSE_VALUES, np.float32)
    router = 0.05 * rng.standard_normal(128 * 2880, np.float32)
    pools: dict[object, np.ndarray] = {"experts": experts, "router": router}
    pools |= {"norm": np.ones(2880, np.float32), "zero": np.zeros(1 << 20, np.float32)}
    for type_id in type_ids - {F32}:
        pools[type_id] = BY_QTYPE[GGMLQuantizationType(type_id)].quantize(values)
    return {kind: memoryview(array.reshape(-1).view(np.uint8)) for kind, array in pools.items()}


def pool_of(tensor: TensorInfo, pools: dict[object, memoryview]) -> memoryview:
    if tensor.type_id != F32:
        return pools["experts" if "_exps" in tensor.name else tensor.type_id]
    if "norm" in tensor.name:
        return pools["norm"]
    return pools["router" if tensor.name.endswith("ffn_gate_inp.weight") else "zero"]


if __name__ == "__main__":
    main()
