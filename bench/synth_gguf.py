"""Write a GGUF of gpt-oss's exact shapes with random weights, for timing only.

    python bench/synth_gguf.py {20b,120b} FILE.gguf [--sparse]

Header and tokenizer are the converter's own, so the file loads and serves like the original; only
its answers are noise. 120b takes 63 GB: half a minute where the disk is memory. `--sparse` leaves
all weights out: enough for `bench/plan_memory.py`, which only asks for their sizes.
"""

import argparse
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
from synth_checkpoint import LAYERS_EXPERTS, layer_tensors, outer_tensors, write_configuration

from convert.pipeline import plan_conversion
from gptoss_local.formats.gguf_file import TensorInfo, read_info

F32, Q8_0, MXFP4 = 0, 8, 39  # ggml_type, ggml.h
BLOCK_BYTES = {F32: 4, Q8_0: 34, MXFP4: 17}
BLOCK_VALUES = {F32: 1, Q8_0: 32, MXFP4: 32}
N_POOL_BLOCKS = 1 << 21  # random blocks that all tensors are cut from
ALIGNMENT = 32  # general.alignment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=LAYERS_EXPERTS)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--sparse", action="store_true")
    arguments = parser.parse_args()
    write_header(arguments.size, arguments.gguf)
    if not arguments.sparse:
        fill(arguments.gguf)


def write_header(size: str, target: Path) -> None:
    """Write what the converter writes for a checkpoint of these shapes, without the weights."""
    with tempfile.TemporaryDirectory() as folder:
        write_sparse_checkpoint(Path(folder), *LAYERS_EXPERTS[size])
        file = plan_conversion(Path(folder), target).files[0]
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


def fill(path: Path) -> None:
    """Write the weights with as many threads as there are cores."""
    info = read_info(path)
    start = -(-info.n_header_bytes // ALIGNMENT) * ALIGNMENT
    pools = random_pools(np.random.default_rng(0))
    file = os.open(path, os.O_WRONLY)

    def write(tensor: TensorInfo) -> None:
        n_left = prod(tensor.shape) // BLOCK_VALUES[tensor.type_id] * BLOCK_BYTES[tensor.type_id]
        pool, position = pool_of(tensor, pools), start + tensor.offset
        while n_left:
            n_written = os.pwrite(file, pool[:n_left], position)
            position, n_left = position + n_written, n_left - n_written

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(write, info.tensors))
    os.close(file)


def random_pools(rng: np.random.Generator) -> dict[str, memoryview]:
    """Raw bytes by kind: MXFP4 scales near 2^-8, Q8_0 values within 0.04, routers around 0.05."""
    mxfp4 = rng.integers(0, 256, (N_POOL_BLOCKS, BLOCK_BYTES[MXFP4]), np.uint8)
    mxfp4[:, 0] = rng.integers(117, 121, N_POOL_BLOCKS)
    q8_0 = rng.integers(0, 256, (N_POOL_BLOCKS, BLOCK_BYTES[Q8_0]), np.uint8)
    q8_0[:, :2] = np.full(1, 0.0003, np.float16).view(np.uint8)
    router = 0.05 * rng.standard_normal(128 * 2880, np.float32)
    flat = {"mxfp4": mxfp4, "q8_0": q8_0, "router": router}
    flat |= {"norm": np.ones(2880, np.float32), "zero": np.zeros(1 << 20, np.float32)}
    return {kind: memoryview(array.reshape(-1).view(np.uint8)) for kind, array in flat.items()}


def pool_of(tensor: TensorInfo, pools: dict[str, memoryview]) -> memoryview:
    if tensor.type_id != F32:
        return pools["mxfp4" if tensor.type_id == MXFP4 else "q8_0"]
    if "norm" in tensor.name:
        return pools["norm"]
    return pools["router" if tensor.name.endswith("ffn_gate_inp.weight") else "zero"]


if __name__ == "__main__":
    main()
